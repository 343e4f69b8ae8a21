// GLOBAL: every sample by itself, from anywhere.
#pragma once

#include <cstdint>

#include "flowgraph/order.h"
#include "flowgraph/permutation.h"
#include "flowgraph/stream.h"

namespace feedline::flow {

/// The samples of a step come in tickets of Order::picks() of them; each is read from the index's entry before it.
class GlobalStream final : public Stream {
 public:
  GlobalStream(const DataSet& data, const Order& order, uint64_t first_pass, uint64_t sample);

  void take(int64_t count, Rows wanted, int64_t at, Taking& to) override;
  void close(Step&) override {}

 private:
  const DataSet* data_;
  const Order* order_;
  const uint64_t first_pass_;
  uint64_t next_;  // sample of the epoch
  uint64_t pass_;  // of the epoch, that the permutation is of
  Permutation permutation_;
};

}  // namespace feedline::flow
