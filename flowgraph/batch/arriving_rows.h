// Steps of rows that nobody has counted: a step is known when its rows are there.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "flowgraph/chunk/chunk.h"
#include "flowgraph/order/sample_stream.h"
#include "flowgraph/order/steps.h"

namespace feedline::flow {

/// What a Walk is where counts are known. One thread at a time.
class ArrivingRows {
 public:
  /// `steps`: of the plan, whose counts are not known. Epochs are numbered from `epoch` on.
  ArrivingRows(const Steps& steps, uint64_t epoch) : steps_(steps), epoch_(epoch) {}

  /// The next chunk of the feed, in order.
  void add(const Chunk& chunk);

  /// The next step or end of an epoch, if all of it has arrived. Where an error ends the data, the last step ends with
  /// a row that the chunk does not have.
  bool next(Step& step);

  /// At an end of epoch that next() gave: how many samples the epoch had, if they made no step for anybody.
  std::optional<int64_t> too_few() const noexcept {
    return last_.steps == 0 ? std::optional(last_.samples) : std::nullopt;
  }

  /// Shares of the last step that next() gave.
  const Steps& steps() const noexcept { return steps_; }

 private:
  void take(int64_t count, Step& step);

  Steps steps_;
  uint64_t epoch_;
  int64_t step_ = 0;
  struct Count {
    int64_t steps = 0;  // without one that DROP leaves out
    int64_t samples = 0;
  };
  Count count_, last_;  // of this epoch so far, and of the one that ended last
  uint64_t tickets_ = 0;
  std::deque<TicketRows> rows_;  // not yet in a step; `at` is of no use
  int64_t waiting_ = 0;          // rows of these
  enum class End : uint8_t { none, of_pass, of_data } end_ = End::none;
};

}  // namespace feedline::flow
