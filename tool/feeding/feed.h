// A trainer that only takes batches: the core of `feedline run` and `tune`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "feedline/feeder.h"
#include "tool/feeding/row_check.h"

namespace feedline::tool {

struct FeedOptions {
  // The run ends before this epoch. Epochs are counted from 0, even if the run continues from a state.
  uint64_t epochs = 1;
  uint64_t steps = 0;          // the maximum number of steps of each replica; 0: all steps of the epochs
  uint64_t warm_up_steps = 0;  // the number of steps before the clock starts
  double step_ms = 0;          // milliseconds for which the trainer keeps a batch
  // If not 0: each replica takes this many batches, then repeats them. This measures the trainer without the feed.
  uint64_t replay = 0;
  // The file that stores how far the replicas have trained. If it exists, the run continues from there. Empty: no file.
  std::string state = {};
  double state_every_ms = 1000;
  bool accept_changes = false;  // see Feeder::set_state
  RowCheck* rows = nullptr;     // checks each batch, which must lie on the host; null: the rows are not checked
  bool quiet = false;           // shows neither the pipeline's warnings nor the progress of the run
};

struct FeedResult {
  Report report;
  std::optional<Error> error;  // the Error that ended the run early
  bool interrupted = false;
  int replicas = 0;
  std::string resumed;  // the state from which the run continued; empty: none
  // The numbers below are counted from the first batch after the warm-up; in a replay, from the first repeated batch.
  // Only `steps` includes the warm-up.
  uint64_t records = 0;
  double next_wait_s = 0;  // how long next() waited, added over all replicas
  uint64_t steps = 0;      // the steps that every replica has made
  double wall_s = 0;
  double cpu_s = 0;
  // The largest growth of the process's memory, RssAnon + RssShmem of /proc/self/status, since before the feeder was
  // made. Sampled every 20 ms.
  uint64_t rss_peak_bytes = 0;

  /// Returns `amount` per second; nullopt if the run was too short for a rate. The clock starts at the first batch,
  /// when more batches may already be ready. In a short run these batches would make the rate too high.
  std::optional<double> per_second(uint64_t amount) const;
};

/// Returns the errors of a feed as a list. `last`, the error that ended the feed, is added at the end unless the list
/// has it already.
Json errors_json(const Report& report, const std::optional<Error>& last);

/// Feeds the pipeline to one thread for each device. The threads look at the data only if `how.rows` is set. Shows on
/// standard error how far the feed is: on a terminal as `feedline top` does, elsewhere by a line now and then. A signal
/// that the caller's Interrupt catches ends the feed. Throws Error if the feeder cannot be made, or if its state cannot
/// be restored.
FeedResult feed(const Pipeline& pipeline, Options options, const FeedOptions& how);

}  // namespace feedline::tool
