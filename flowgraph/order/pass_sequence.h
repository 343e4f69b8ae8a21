// The samples of one pass after another, before any shuffling.
#pragma once

#include <cstdint>

#include "flowgraph/order/order.h"
#include "flowgraph/order/sequence.h"

namespace feedline::flow {

class PassSequence {
 public:
  /// From a sample on, counted from the beginning of `first_pass`. Keeps a reference to `order`, which has samples.
  PassSequence(const Order& order, uint64_t first_pass, uint64_t sample)
      : order_(&order),
        pass_(first_pass + sample / order.samples()),
        sequence_(order.sequence(pass_, sample % order.samples())) {}

  /// The next at most `most` samples that lie one after another: at least one.
  Run next(uint64_t most) {
    const Run run = sequence_.next(most);
    if (run.count > 0) return run;
    sequence_ = order_->sequence(++pass_, 0);
    return sequence_.next(most);
  }
  /// That the last of them was in.
  uint64_t pass() const noexcept { return pass_; }

 private:
  const Order* order_;
  uint64_t pass_;  // since the beginning of the feed
  Sequence sequence_;
};

}  // namespace feedline::flow
