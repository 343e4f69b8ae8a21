// Makes steps from rows that have not been counted: a step is known when all its rows have arrived.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "flowgraph/chunk/chunk.h"
#include "flowgraph/order/sample_stream.h"
#include "flowgraph/order/steps.h"

namespace feedline::flow {

/// Takes the place of a Walk if counts are not known (index.mode LAZY). One thread at a time may use it.
class ArrivingRows {
 public:
  /// `steps` is that of the plan, whose counts are not known. Epochs are numbered from `epoch` on.
  ArrivingRows(const Steps& steps, uint64_t epoch) : steps_(steps), epoch_(epoch) {}

  /// Adds the next chunk of the feed; chunks must be added in order.
  void add(const Chunk& chunk);

  /// Sets `step` to the next step or end of an epoch, and returns true, if all of it has arrived. If an error ends the
  /// data, the last step ends with a row that its chunk does not have.
  bool next(Step& step);

  /// After next() gave the end of an epoch: returns how many samples the epoch had, if they made no step for any
  /// replica.
  std::optional<int64_t> too_few() const noexcept {
    return last_.steps == 0 ? std::optional(last_.samples) : std::nullopt;
  }

  /// Returns how the rows of the last step that next() gave are shared out.
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
  Count count_, last_;  // counts of this epoch so far, and of the one that ended last
  uint64_t tickets_ = 0;
  std::deque<TicketRows> rows_;  // rows that are not yet in a step; `at` is not used
  int64_t waiting_ = 0;          // how many rows these are
  enum class End : uint8_t { none, of_pass, of_data } end_ = End::none;
};

}  // namespace feedline::flow
