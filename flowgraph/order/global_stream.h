// GLOBAL: all samples of a pass in random order, each read by itself.
#pragma once

#include <cstdint>

#include "flowgraph/order/order.h"
#include "flowgraph/order/permutation.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// The samples of a step that this rank wants are read in tickets of at most Order::picks() samples. A sample is read
/// from the last index entry at or before it, because the index does not know the offset of every record.
class GlobalStream final : public SampleStream {
 public:
  GlobalStream(const Order& order, Wide first_pass, uint64_t sample);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step&) override {}

 private:
  /// Adds the rows of one sample, which begin at row `row` of the ticket opened last. `sample` is the sample's number
  /// in file order, `at` its number in the step. If `ticket` is not null, appends the sample to it. Returns how many
  /// rows of the ticket the sample spans.
  uint32_t add_rows(uint64_t sample, uint32_t row, int64_t at, Ticket* ticket, TakeResult& to) const;

  const Order* order_;
  const Wide first_pass_;
  uint64_t next_;  // the next sample, counted from the beginning of first_pass_
  uint64_t pass_;  // the pass of permutation_, counted from first_pass_
  Permutation permutation_;
};

}  // namespace feedline::flow
