#include "flowgraph/order/picked_stream.h"

#include <algorithm>

namespace feedline::flow {

PickedStream::PickedStream(const Order& order, const Steps& steps, uint64_t sample)
    : order_(&order), steps_(&steps), next_(sample) {}

void PickedStream::take(int64_t count, Rows wanted, int64_t at, TakeResult& to) {
  const uint64_t end = next_ + static_cast<uint64_t>(wanted.last);
  for (uint64_t sample = next_ + static_cast<uint64_t>(wanted.first); sample < end;) {
    if (!current_ || sample >= current_->end) open_block_of(sample, to);
    if (current_->whole) current_->next_row = static_cast<uint32_t>(sample - current_->first_wanted);
    const auto n = static_cast<uint32_t>(std::min(end, current_->end) - sample);
    if (to.with_rows)
      to.step.rows.push_back({current_->ticket, current_->next_row, n, at + static_cast<int64_t>(sample - next_)});
    current_->next_row += n;
    sample += n;
  }
  next_ += static_cast<uint64_t>(count);
}

void PickedStream::open_block_of(uint64_t sample, TakeResult& to) {
  const Blocks& blocks = order_->blocks();
  if (current_) {
    to.step.finished.push_back(current_->ticket);
  } else {
    const uint64_t in_pass = sample % order_->samples();
    const Order::FileSample place = order_->place(in_pass);
    current_ = Current();
    current_->block = order_->block_at(place.file, place.sample);
    current_->first = sample - (place.sample - blocks[current_->block].first);
    current_->end = current_->first + blocks[current_->block].rows;
  }
  while (sample >= current_->end) {
    current_->block = (current_->block + 1) % blocks.size();
    current_->first = current_->end;
    current_->end += blocks[current_->block].rows;
  }
  current_->ticket = to.tickets++;
  current_->next_row = 0;
  current_->first_wanted = sample;
  current_->whole = !Order::picks_rows(blocks[current_->block], steps_->rows(Steps::Kind::full));
  if (to.opened) fill_in(to.opened->emplace_back());
}

// Appends the rows of the current block that this rank wants in this step and the following ones.
void PickedStream::fill_in(Ticket& ticket) const {
  const Block& block = order_->blocks()[current_->block];
  const uint64_t from = current_->first_wanted;
  const auto global_batch = static_cast<uint64_t>(steps_->rows(Steps::Kind::full));
  uint64_t begin = from, end = from;
  const auto add = [&] {
    if (begin < end) order_->add_samples(ticket, block.file, block.first + (begin - current_->first), end - begin);
  };
  for (auto step = static_cast<int64_t>(from / global_batch); steps_->reaches(step); step++) {
    const uint64_t at = static_cast<uint64_t>(step) * global_batch;
    if (at >= current_->end) break;
    const Rows& wanted = steps_->of_rank(steps_->kind(step));
    const uint64_t first = std::max(from, at + static_cast<uint64_t>(wanted.first));
    const uint64_t last = std::min(current_->end, at + static_cast<uint64_t>(wanted.last));
    if (first >= last) continue;
    if (first != end && !current_->whole) {
      add();
      begin = first;
    }
    end = last;
  }
  add();
}

void PickedStream::close(Step& step) {
  if (current_) step.finished.push_back(current_->ticket);
  current_.reset();
}

}  // namespace feedline::flow
