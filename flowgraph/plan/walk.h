// Goes through the steps of a feed: which tickets are read, and which of their rows are the rows of which step. Two
// walks from the same place see the same: [read] follows the tickets of one, [assemble] the rows of another.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

struct Plan;

class Walk {
 public:
  struct Start {
    uint64_t epoch = 0;
    int64_t step = 0;
  };
  /// Keeps a reference to `plan`. with_rows: Step::rows are filled in.
  Walk(const Plan& plan, Start start, bool with_rows);

  /// Tickets that the step opens are appended to `opened`, if given.
  void next(Step& step, std::vector<Ticket>* opened);

 private:
  SampleStream& stream(uint32_t lane);

  const Plan& plan_;
  const Steps& steps_;
  const bool with_rows_;
  uint64_t epoch_;
  int64_t step_;
  uint64_t tickets_ = 0;
  std::vector<std::unique_ptr<SampleStream>> streams_;  // by lane; null: this rank has not taken from it yet
};

}  // namespace feedline::flow
