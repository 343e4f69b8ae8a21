#include "flowgraph/walk.h"

#include <algorithm>

#include "flowgraph/draws.h"
#include "flowgraph/mul_div.h"

namespace feedline::flow {
namespace {

enum Purpose : uint64_t { of_block = 16, of_round };

}  // namespace

LaneWalk::LaneWalk(const Order& order, uint32_t lane, uint64_t first_pass, uint64_t sample, bool with_rows)
    : order_(&order), number_(lane), first_pass_(first_pass), with_rows_(with_rows) {
  uint64_t phase = mul_div(sample, order.lanes(), order.samples());
  while (order.lane_samples(lane, phase) > sample) phase--;
  while (order.lane_samples(lane, phase + 1) <= sample) phase++;
  enter_pass(phase);
  taken_ = sample - order.lane_samples(lane, phase);
  const auto ends = pass_->round_ends.begin() + static_cast<ptrdiff_t>(this->lane().first_round);
  round_ = static_cast<uint32_t>(std::upper_bound(ends, ends + this->lane().rounds, taken_) - ends);
  next_block_ = round_ < order.window() ? 0 : round_ - order.window() + 1;
}

void LaneWalk::enter_pass(uint64_t phase) {
  phase_ = phase;
  pass_ = order_->pass(first_pass_ + phase, phase);
  round_ = next_block_ = 0;
  taken_ = 0;
  entered_ = false;
}

void LaneWalk::open_next(uint64_t& tickets, std::vector<Pass::Part>* opened) {
  Open block{.part = pass_->part(lane(), next_block_++), .ticket = tickets++, .segments = {}, .rows = {}};
  if (opened) opened->push_back(block.part);
  if (with_rows_) {
    block.segments = segments_of(*pass_, block.part.block, block.part.rows, order_->window());
    block.rows.resize(block.part.rows);
    for (uint32_t row = 0; row < block.part.rows; row++) block.rows[row] = row;
    // The parts of a block in two lanes are two decks.
    shuffle(std::span(block.rows), Draws(key_of({pass_->key, of_block, block.part.block, block.part.first})));
  }
  open_.push_back(std::move(block));
}

void LaneWalk::enter_round(uint64_t& tickets, std::vector<Pass::Part>* opened) {
  entered_ = true;
  while (next_block_ <= round_ && next_block_ < lane().blocks) open_next(tickets, opened);
  if (!with_rows_) return;
  drawn_.clear();
  uint32_t segment = round_ - (next_block_ - static_cast<uint32_t>(open_.size()));
  for (const Open& block : open_) {
    for (uint32_t i = block.segments.before(segment); i < block.segments.before(segment + 1); i++)
      drawn_.push_back({block.ticket, block.rows[i]});
    segment--;
  }
  shuffle(std::span(drawn_), Draws(key_of({pass_->key, of_round, number_, round_})));
}

// The oldest block has given its last segment.
void LaneWalk::leave_round(Step& step) {
  const uint32_t oldest = next_block_ - static_cast<uint32_t>(open_.size());
  if (!open_.empty() && oldest + order_->window() == round_ + 1) {
    step.finished.push_back(open_.front().ticket);
    open_.pop_front();
  }
  round_++;
  entered_ = false;
}

void LaneWalk::take(int64_t count, Rows wanted, int64_t at, uint64_t& tickets, std::vector<Pass::Part>* opened,
                    Step& step) {
  for (int64_t done = 0; done < count;) {
    if (taken_ == lane().end - lane().begin) enter_pass(phase_ + 1);
    if (!entered_) enter_round(tickets, opened);
    const uint64_t left = round_end(round_) - taken_;
    const int64_t n = std::min(static_cast<int64_t>(left), count - done);
    if (with_rows_) {
      const auto first = drawn_.end() - static_cast<ptrdiff_t>(left);
      for (int64_t i = std::max<int64_t>(0, wanted.first - done); i < std::min(n, wanted.last - done); i++)
        step.rows.push_back({first[i].ticket, first[i].row, 1, at + done + i});
    }
    done += n;
    taken_ += static_cast<uint64_t>(n);
    if (static_cast<uint64_t>(n) == left) leave_round(step);
  }
}

void LaneWalk::close(Step& step) {
  for (const Open& block : open_) step.finished.push_back(block.ticket);
  open_.clear();
}

Walk::Walk(const DataSet& data, const Order& order, const Steps& steps, int64_t repeat, Start start, bool with_rows)
    : data_(&data),
      order_(&order),
      steps_(&steps),
      repeat_(repeat),
      with_rows_(with_rows),
      epoch_(start.epoch),
      step_(start.step) {
  // A rank that shares steps of a few records with others would read the same bytes many times over.
  const uint64_t samples = std::max<uint64_t>(1, order.samples());
  uint64_t bytes = 0;
  for (const Block& block : order.blocks()) bytes += block.bytes;
  whole_blocks_ = bytes / samples * static_cast<uint64_t>(steps.rows(Steps::Kind::full)) < fine_step_bytes;
  begin_epoch();
}

void Walk::begin_epoch() {
  started_at_ = static_cast<uint64_t>(step_ * steps_->rows(Steps::Kind::full));
  lanes_.clear();
  lanes_.resize(order_->lanes());
  current_.reset();
}

void Walk::next(Step& step, std::vector<Ticket>* opened) {
  step.rows.clear();
  step.finished.clear();
  step.epoch = epoch_;
  step.step = step_;
  step.ends_epoch = !steps_->exists(step_);
  if (step.ends_epoch) {
    for (auto& lane : lanes_)
      if (lane) lane->close(step);
    if (current_) step.finished.push_back(current_->ticket);
    step.finished.push_back(tickets_++);
    if (opened) opened->emplace_back();
    epoch_++;
    step_ = 0;
    begin_epoch();
  } else {
    step.kind = steps_->kind(step_);
    if (order_->shuffled())
      take_of_lanes(step, opened);
    else
      take_in_file_order(step, opened);
    step_++;
  }
  step.tickets = tickets_;
}

void Walk::take_of_lanes(Step& step, std::vector<Ticket>* opened) {
  const Rows& wanted = steps_->of_rank(step.kind);
  for (uint32_t l = 0; l < order_->lanes(); l++) {
    const Steps::LaneRows rows = steps_->of_lane(step.kind, l);
    const Rows of_lane{std::max(wanted.first, rows.first) - rows.first,
                       std::min(wanted.last, rows.first + rows.count) - rows.first};
    if (of_lane.first >= of_lane.last) continue;
    if (!lanes_[l])
      lanes_[l].emplace(*order_, l, repeat_ < 0 ? 0 : epoch_ * static_cast<uint64_t>(repeat_),
                        static_cast<uint64_t>(step_ * steps_->lane_step()), with_rows_);
    parts_.clear();
    lanes_[l]->take(rows.count, of_lane, rows.first, tickets_, opened ? &parts_ : nullptr, step);
    for (const Pass::Part& part : parts_) {
      const Block& block = order_->blocks()[part.block];
      const uint64_t first = data_->files[block.file].index.entries[block.begin].record + part.first;
      opened->emplace_back().add(*data_, block.file, first, part.rows);
    }
  }
}

void Walk::take_in_file_order(Step& step, std::vector<Ticket>* opened) {
  const Rows& wanted = steps_->of_rank(step.kind);
  const auto first = static_cast<uint64_t>(step_ * steps_->rows(Steps::Kind::full));
  const uint64_t end = first + static_cast<uint64_t>(wanted.last);
  for (uint64_t sample = first + static_cast<uint64_t>(wanted.first); sample < end;) {
    if (!current_ || sample >= current_->end) open_block_of(sample, step, opened);
    const auto count = static_cast<uint32_t>(std::min(end, current_->end) - sample);
    if (whole_blocks_) current_->next_row = static_cast<uint32_t>(sample - std::max(current_->first, started_at_));
    if (with_rows_)
      step.rows.push_back({current_->ticket, current_->next_row, count, static_cast<int64_t>(sample - first)});
    current_->next_row += count;
    sample += count;
  }
}

void Walk::open_block_of(uint64_t sample, Step& step, std::vector<Ticket>* opened) {
  if (current_) {
    step.finished.push_back(current_->ticket);
  } else {
    const std::vector<uint64_t>& starts = order_->pass(0, 0)->starts;
    const uint64_t pass = sample / order_->samples(), in_pass = sample % order_->samples();
    const auto block = std::upper_bound(starts.begin(), starts.end(), in_pass) - starts.begin() - 1;
    current_.emplace();
    current_->block = static_cast<size_t>(block);
    current_->first = pass * order_->samples() + starts[static_cast<size_t>(block)];
    current_->end = current_->first + order_->blocks()[current_->block].rows;
  }
  while (sample >= current_->end) {
    current_->block = (current_->block + 1) % order_->blocks().size();
    current_->first = current_->end;
    current_->end += order_->blocks()[current_->block].rows;
  }
  current_->ticket = tickets_++;
  current_->next_row = 0;
  if (opened) fill_in(opened->emplace_back());
}

// The rows of the current block that this rank wants, in this step and those that follow.
void Walk::fill_in(Ticket& ticket) const {
  const Block& block = order_->blocks()[current_->block];
  const uint64_t first_record = data_->files[block.file].index.entries[block.begin].record;
  const uint64_t from = std::max(current_->first, started_at_);
  const auto add = [&](uint64_t first, uint64_t last) {
    if (first < last) ticket.add(*data_, block.file, first_record + (first - current_->first), last - first);
  };
  if (whole_blocks_) return add(from, current_->end);
  const auto global_batch = static_cast<uint64_t>(steps_->rows(Steps::Kind::full));
  uint64_t begin = from, end = from;
  for (auto step = static_cast<int64_t>(from / global_batch); steps_->exists(step); step++) {
    const uint64_t at = static_cast<uint64_t>(step) * global_batch;
    if (at >= current_->end) break;
    const Rows& wanted = steps_->of_rank(steps_->kind(step));
    const uint64_t first = std::max(from, at + static_cast<uint64_t>(wanted.first));
    const uint64_t last = std::min(current_->end, at + static_cast<uint64_t>(wanted.last));
    if (first != end) add(std::exchange(begin, first), end);
    end = std::max(first, last);
  }
  add(begin, end);
}

}  // namespace feedline::flow
