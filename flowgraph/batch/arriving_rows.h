// index.mode LAZY: makes steps from rows that have not been counted. A step is known when all its rows have arrived.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "flowgraph/chunk/chunk.h"
#include "flowgraph/order/sample_stream.h"
#include "flowgraph/order/steps.h"

namespace feedline::flow {

/// Gives the steps of a feed, as a Walk does if the data has been counted. One thread at a time may use it.
class ArrivingRows {
 public:
  /// `steps` is Schedule::steps, in which the length of an epoch is not known yet. Epochs are numbered from `epoch` on.
  ArrivingRows(const Steps& steps, uint64_t epoch) : steps_(steps), epoch_(epoch) {}

  /// Adds the next chunk of the feed; chunks must be added in order.
  void add(const Chunk& chunk);

  /// If all rows of the next step have arrived, or if the end of the epoch has arrived, sets `step` to that step or
  /// end, and returns true. If an error ends the data, the last step ends with a row that its chunk does not have; this
  /// row stands for the error.
  bool next(Step& step);

  /// If the epoch that ended last had too few samples to give any replica a step, returns how many samples it had.
  /// Otherwise returns nullopt.
  std::optional<int64_t> too_few() const noexcept {
    return last_.steps == 0 ? std::optional(last_.samples) : std::nullopt;
  }

  /// Returns how rows are divided among replicas. This holds for the step that next() gave last.
  const Steps& steps() const noexcept { return steps_; }

 private:
  void take(int64_t count, Step& step);

  Steps steps_;
  uint64_t epoch_;
  int64_t step_ = 0;
  struct Count {
    int64_t steps = 0;  // not counting a step that DROP leaves out
    int64_t samples = 0;
  };
  Count count_, last_;  // counts of this epoch so far, and of the epoch that ended last
  uint64_t tickets_ = 0;
  std::deque<TicketRows> rows_;  // rows that are not yet in a step; `at` is not used
  int64_t waiting_ = 0;          // the number of rows in rows_
  enum class End : uint8_t { none, of_pass, of_data } end_ = End::none;
};

}  // namespace feedline::flow
