// Notes what became of a step whose rows can fail while they are written.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "feedline/error.h"
#include "flowgraph/chunk/bad_record.h"

namespace feedline::flow {

/// Shared by the batches of a step. The step is delivered when all its batches are written: to all replicas or to none.
struct StepOutcome {
  explicit StepOutcome(int batches) : unwritten(batches) {}

  std::atomic<int> unwritten;  // batches that are still to be written
  uint64_t bad_before = 0;     // the number of bad records that were known when the step was assembled
  Mutex mutex;
  // The records of all batches whose rows could not be written, in any order.
  std::vector<BadRecord> failed FEEDLINE_GUARDED_BY(mutex);
  bool settled FEEDLINE_GUARDED_BY(mutex) = false;  // `end` and `end_row` are final
  std::optional<Error> end;                         // the error with which the feed ends in place of this step
  int64_t end_row = 0;                              // the row of the step at which the feed ends
};

}  // namespace feedline::flow
