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

void GlobalStream::take(int64_t count, Rows wanted, int64_t at, Taking& to) {
  for (int64_t row = wanted.first; row < wanted.last;) {
    const int64_t end = std::min<int64_t>(wanted.last, row + order_->picks());
    if (to.with_rows) to.step.rows.push_back({to.tickets, 0, static_cast<uint32_t>(end - row), at + row});
    to.step.finished.push_back(to.tickets++);
    if (!to.opened) {
      row = end;
      continue;
    }
    Ticket& ticket = to.opened->emplace_back();
    for (; row < end; row++) {
      const uint64_t sample = next_ + static_cast<uint64_t>(row), pass = sample / order_->samples();
      if (pass != pass_) {
        pass_ = pass;
        permutation_ = Permutation(order_->samples(), order_->key_of_pass(first_pass_ + pass_));
      }
      const Order::Place place = order_->place(permutation_(sample - pass * order_->samples()));
      ticket.add(*data_, place.file, place.sample, 1);
    }
  }
  next_ += static_cast<uint64_t>(count);
}

}  // namespace feedline::flow
