#include "flowgraph/global_stream.h"

#include <algorithm>

namespace feedline::flow {

GlobalStream::GlobalStream(const DataSet& data, const Order& order, uint64_t first_pass, uint64_t sample)
    : data_(&data),
      order_(&order),
      first_pass_(first_pass),
      next_(sample),
      pass_(sample / order.samples()),
      permutation_(order.samples(), order.key_of_pass(first_pass + pass_)) {}

uint32_t GlobalStream::add_rows(uint64_t sample, uint32_t row, int64_t at, Ticket* ticket, Taking& to) const {
  const Windows* windows = order_->windows();
  if (!windows) {
    const Order::Place place = order_->place(sample);
    if (ticket) ticket->add(*data_, place.file, place.sample, 1);
    if (to.with_rows) to.step.rows.push_back({to.tickets - 1, row, 1, at});
    return 1;
  }
  const WindowSpec& spec = windows->spec();
  const Windows::Window window = windows->at(sample);
  const uint64_t end = window.last(spec.stride) + 1;
  if (ticket) {
    const std::vector<uint64_t>& starts = windows->file_starts();
    auto file = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), window.first) - starts.begin() - 1);
    for (uint64_t frame = window.first; frame < end; file++) {
      const uint64_t until = std::min(end, starts[file + 1]);
      if (until > frame) ticket->add(*data_, static_cast<uint32_t>(file), frame - starts[file], until - frame);
      frame = std::max(frame, until);
    }
  }
  for (int64_t f = 0; f < window.frames && to.with_rows; f++)
    to.step.rows.push_back({to.tickets - 1, row + static_cast<uint32_t>(f * spec.stride), 1, at * spec.size + f});
  return static_cast<uint32_t>(end - window.first);
}

void GlobalStream::take(int64_t count, Rows wanted, int64_t at, Taking& to) {
  for (int64_t row = wanted.first; row < wanted.last;) {
    const int64_t end = std::min<int64_t>(wanted.last, row + order_->picks());
    to.step.finished.push_back(to.tickets++);
    Ticket* const ticket = to.opened ? &to.opened->emplace_back() : nullptr;
    if (!ticket && !order_->windows()) {
      if (to.with_rows) to.step.rows.push_back({to.tickets - 1, 0, static_cast<uint32_t>(end - row), at + row});
      row = end;
      continue;
    }
    for (uint32_t in_ticket = 0; row < end; row++) {
      const uint64_t sample = next_ + static_cast<uint64_t>(row), pass = sample / order_->samples();
      if (pass != pass_) {
        pass_ = pass;
        permutation_ = Permutation(order_->samples(), order_->key_of_pass(first_pass_ + pass_));
      }
      in_ticket += add_rows(permutation_(sample - pass * order_->samples()), in_ticket, at + row, ticket, to);
    }
  }
  next_ += static_cast<uint64_t>(count);
}

}  // namespace feedline::flow
