// GLOBAL: every sample by itself, from anywhere.
#pragma once

#include <cstdint>

#include "flowgraph/order/order.h"
#include "flowgraph/order/permutation.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// The samples of a step come in tickets of Order::picks() of them; each is read from the index's entry before it.
class GlobalStream final : public SampleStream {
 public:
  GlobalStream(const Order& order, uint64_t first_pass, uint64_t sample);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step&) override {}

 private:
  /// Of one sample, whose first row in its ticket is `row`; returns how many it has there.
  uint32_t add_rows(uint64_t sample, uint32_t row, int64_t at, Ticket* ticket, TakeResult& to) const;

  const Order* order_;
  const uint64_t first_pass_;
  uint64_t next_;  // sample of the epoch
  uint64_t pass_;  // of the epoch, that the permutation is of
  Permutation permutation_;
};

}  // namespace feedline::flow
