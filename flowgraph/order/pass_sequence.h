// The samples of a feed before any shuffling, one pass after another.
#pragma once

#include <cstdint>

#include "flowgraph/order/order.h"
#include "flowgraph/order/sequence.h"

namespace feedline::flow {

/// A Sequence that continues with the next pass when a pass ends.
class PassSequence {
 public:
  /// Begins at sample `sample`, counted from the beginning of pass `first_pass`. Keeps a reference to `order`.
  /// Precondition: the order has samples.
  PassSequence(const Order& order, Wide first_pass, uint64_t sample)
      : order_(&order),
        pass_(first_pass + sample / order.samples()),
        sequence_(order.sequence(pass_, sample % order.samples())) {}

  /// Returns the next samples that lie one after another in a file: at least one, at most `most`.
  Run next(uint64_t most) {
    const Run run = sequence_.next(most);
    if (run.count > 0) return run;
    sequence_ = order_->sequence(++pass_, 0);
    return sequence_.next(most);
  }
  /// The pass of the samples that next() returned last.
  Wide pass() const noexcept { return pass_; }

 private:
  const Order* order_;
  Wide pass_;  // numbered as in Steps::first_pass()
  Sequence sequence_;
};

}  // namespace feedline::flow
