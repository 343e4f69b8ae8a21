// Walks through the steps of a feed, and says which tickets must be read and which of their rows are the rows of which
// step. Two walks with the same start give the same result. So the graph's node [read] takes the tickets from one walk,
// and the node [assemble] takes the rows from another. The two nodes need no messages about tickets or rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

struct Schedule;

/// Gives steps in order, without end: after the last step of an epoch comes a Step whose `ends_epoch` is true. Not
/// thread-safe.
class Walk {
 public:
  /// The step at which a walk begins.
  struct Start {
    uint64_t epoch = 0;
    int64_t step = 0;
  };
  /// Keeps a reference to `schedule`. `with_rows` says whether Step::rows is filled in.
  Walk(const Schedule& schedule, Start start, bool with_rows);

  /// Sets `step` to the next step. Appends the tickets that it opens to `opened`, unless that is null.
  void next(Step& step, std::vector<Ticket>* opened);

 private:
  SampleStream& stream(uint32_t lane);

  const Schedule& schedule_;
  const Steps& steps_;
  const bool with_rows_;
  uint64_t epoch_;
  int64_t step_;
  uint64_t tickets_ = 0;
  std::vector<std::unique_ptr<SampleStream>> streams_;  // by lane; null: this rank has taken nothing from it yet
};

}  // namespace feedline::flow
