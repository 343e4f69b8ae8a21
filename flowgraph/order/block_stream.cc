#include "flowgraph/order/block_stream.h"

#include <algorithm>

#include "base/draws.h"
#include "flowgraph/order/purpose.h"

namespace feedline::flow {
BlockStream::BlockStream(const Order& order, uint32_t lane, Wide first_pass, uint64_t sample)
    : order_(&order), number_(lane), first_pass_(first_pass) {
  const uint64_t epoch_pass = order.epoch_pass_at(lane, sample);
  enter_pass(epoch_pass);
  taken_ = sample - order.lane_samples(lane, epoch_pass);
  const auto ends = pass_->round_ends.begin() + static_cast<ptrdiff_t>(this->lane().first_round);
  round_ = static_cast<uint32_t>(std::upper_bound(ends, ends + this->lane().rounds, taken_) - ends);
  next_block_ = round_ < order.mixed_blocks() ? 0 : round_ - order.mixed_blocks() + 1;
}

void BlockStream::enter_pass(uint64_t epoch_pass) {
  epoch_pass_ = epoch_pass;
  pass_ = order_->pass(first_pass_ + epoch_pass, epoch_pass);
  round_ = next_block_ = 0;
  taken_ = 0;
  entered_ = false;
}

void BlockStream::open_next(TakeResult& to) {
  const Pass::BlockPart part = pass_->part(lane(), next_block_++);
  const Block& block = order_->blocks()[part.block];
  const uint64_t first = block.first + part.first;  // the part's first sample, numbered within the file
  OpenBlock open{.ticket = to.tickets++, .segments = {}, .samples = {}};
  if (to.opened) order_->add_samples(to.opened->emplace_back(), block.file, first, part.rows);
  if (to.with_rows) {
    open.segments = segments_of(*pass_, part.block, part.rows, order_->mixed_blocks());
    open.samples.resize(part.rows);
    // Two lanes that share a block shuffle their parts of it independently of each other.
    fill_shuffled(std::span(open.samples), Draws(key_of({pass_->key, of_block, part.block, part.first})),
                  [&](size_t sample) { return order_->rows_of(block.file, first, first + sample); });
  }
  open_.push_back(std::move(open));
}

void BlockStream::enter_round(TakeResult& to) {
  entered_ = true;
  while (next_block_ <= round_ && next_block_ < lane().blocks) open_next(to);
  if (!to.with_rows || order_->mixed_blocks() == 1) return;
  drawn_.clear();
  uint32_t segment = round_ - (next_block_ - static_cast<uint32_t>(open_.size()));
  for (const OpenBlock& block : open_) {
    const uint32_t end = block.segments.before(segment + 1);
    for (uint32_t i = block.segments.before(segment); i < end; i++) drawn_.push_back({block.ticket, block.samples[i]});
    segment--;
  }
  shuffle(std::span(drawn_), Draws(key_of({pass_->key, of_round, number_, round_})));
}

BlockStream::Drawn BlockStream::drawn(size_t i) const noexcept {
  return order_->mixed_blocks() == 1 ? Drawn{open_.back().ticket, open_.back().samples[i]} : drawn_[i];
}

// Finishes the oldest open block if this round took its last segment.
void BlockStream::leave_round(Step& step) {
  const uint32_t oldest = next_block_ - static_cast<uint32_t>(open_.size());
  if (!open_.empty() && oldest + order_->mixed_blocks() == round_ + 1) {
    step.finished.push_back(open_.front().ticket);
    open_.pop_front();
  }
  round_++;
  entered_ = false;
}

void BlockStream::take(int64_t count, Rows wanted, int64_t at, TakeResult& to) {
  for (int64_t done = 0; done < count;) {
    if (taken_ == lane().end - lane().begin) {
      // Blocks may still be open: their last segments are empty, so the rounds of these segments were never entered.
      close(to.step);
      // A pass may have fewer samples than there are lanes. So passes in which this lane has no sample are left out.
      enter_pass(order_->epoch_pass_at(number_, order_->lane_samples(number_, epoch_pass_ + 1)));
    }
    if (!entered_) enter_round(to);
    const uint64_t left = round_end(round_) - taken_;
    const int64_t n = std::min(static_cast<int64_t>(left), count - done);
    if (to.with_rows) {
      const uint64_t first = taken_ - round_begin();
      const int64_t from = std::max<int64_t>(0, wanted.first - done), until = std::min(n, wanted.last - done);
      add_samples(*order_, std::max<int64_t>(0, until - from), to.step.rows, [&](int64_t i) {
        const Drawn sample = drawn(first + static_cast<uint64_t>(from + i));
        return TicketRows{sample.ticket, sample.rows.first, sample.rows.count, at + done + from + i};
      });
    }
    done += n;
    taken_ += static_cast<uint64_t>(n);
    if (static_cast<uint64_t>(n) == left) leave_round(to.step);
  }
}

void BlockStream::close(Step& step) {
  for (const OpenBlock& block : open_) step.finished.push_back(block.ticket);
  open_.clear();
}

}  // namespace feedline::flow
