#include "flowgraph/order/global_stream.h"

#include <algorithm>

namespace feedline::flow {

GlobalStream::GlobalStream(const Order& order, Wide first_pass, uint64_t sample)
    : order_(&order),
      first_pass_(first_pass),
      next_(sample),
      pass_(sample / order.samples()),
      permutation_(order.samples(), order.seed_of_pass(first_pass + pass_)) {}

uint32_t GlobalStream::add_rows(uint64_t sample, uint32_t row, int64_t at, Ticket* ticket, TakeResult& to) const {
  const Order::FileSample place = order_->place(sample);
  if (ticket) order_->add_samples(*ticket, place.file, place.sample, 1);
  const uint32_t frames = order_->rows_of(place.file, place.sample, place.sample).count;
  if (to.with_rows) flow::add_rows(*order_, {to.tickets - 1, row, frames, at}, to.step.rows);
  return (frames - 1) * static_cast<uint32_t>(order_->stride()) + 1;
}

void GlobalStream::take(int64_t count, Rows wanted, int64_t at, TakeResult& to) {
  for (int64_t row = wanted.first; row < wanted.last;) {
    const int64_t end = std::min<int64_t>(wanted.last, row + order_->picks());
    to.step.finished.push_back(to.tickets++);
    Ticket* const ticket = to.opened ? &to.opened->emplace_back() : nullptr;
    if (ticket) ticket->scattered = true;
    if (!ticket && !order_->windows()) {
      if (to.with_rows) to.step.rows.push_back({to.tickets - 1, 0, static_cast<uint32_t>(end - row), at + row});
      row = end;
      continue;
    }
    for (uint32_t in_ticket = 0; row < end; row++) {
      const uint64_t sample = next_ + static_cast<uint64_t>(row), pass = sample / order_->samples();
      if (pass != pass_) {
        pass_ = pass;
        permutation_ = Permutation(order_->samples(), order_->seed_of_pass(first_pass_ + pass_));
      }
      in_ticket += add_rows(permutation_(sample - pass * order_->samples()), in_ticket, at + row, ticket, to);
    }
  }
  next_ += static_cast<uint64_t>(count);
}

}  // namespace feedline::flow
