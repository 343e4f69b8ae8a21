// Counts the bad records that a feed meets, and ends the feed if they are more than `errors` of the pipeline allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flowgraph/batch/step_outcome.h"
#include "flowgraph/chunk/chunk.h"
#include "flowgraph/feed/error_log.h"
#include "flowgraph/plan/schedule.h"

namespace feedline::flow {

/// Counts bad records in the order of the data, so that the feed ends at the same step whatever the timing. A record is
/// found to be bad either when its chunk is parsed or when its step is written. Chunks are parsed ahead of the steps,
/// so each step carries the number of bad records that had been found in chunks when it was assembled
/// (StepOutcome::bad_before).
class BadRecords {
 public:
  /// Keeps a reference to `schedule`.
  explicit BadRecords(const Schedule& schedule) : schedule_(schedule) {}

  /// Notes the bad records of a chunk. If a record exceeds a limit of the pipeline's `errors`, cuts the chunk off
  /// before that record, and gives the chunk an Error. Chunks must come in order.
  void note(Chunk& chunk);
  /// Returns how many bad records have been noted in chunks.
  uint64_t in_chunks() const noexcept { return in_chunks_.total(); }

  /// Settles a step whose batches are all written: notes its failed rows, and sets StepOutcome::end if the feed ends
  /// there. Steps must come in order. May be called again, from any thread, without effect.
  void settle(StepOutcome& step);

  uint64_t total() const noexcept { return in_chunks_.total() + in_steps_.total(); }
  /// Returns the Errors of the first bad records that were noted, at most ErrorLog::kept.
  std::vector<Error> first() const;

 private:
  std::optional<Error> note(const Error& error);
  std::optional<std::string> exceeded_limit(uint64_t bad) const;

  const Schedule& schedule_;
  ErrorLog in_chunks_, in_steps_;
  std::optional<Error> last_in_steps_;  // the bad record that settle() noted last
};

}  // namespace feedline::flow
