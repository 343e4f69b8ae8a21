// A trainer that only takes batches: the core of `feedline run` and `demo`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "feedline/feeder.h"
#include "tool/feeding/row_check.h"

namespace feedline::tool {

struct FeedOptions {
  // The epoch before which the run ends, counted from epoch 0, also if the run continues from a state.
  uint64_t epochs = 1;
  uint64_t steps = 0;          // the most steps of each replica; 0: all steps of the epochs
  uint64_t warm_up_steps = 0;  // so many steps come before the clock starts
  double step_ms = 0;          // milliseconds for which the trainer keeps a batch
  // If not 0: each replica takes this many batches, then repeats them. This measures the trainer without the feed.
  uint64_t replay = 0;
  // A file that keeps how far the replicas have trained; if it exists, the run continues from there. Empty: none.
  std::string state = {};
  double state_every_ms = 1000;
  bool accept_changes = false;  // see Feeder::set_state
  RowCheck* rows = nullptr;     // is given each batch, which must lie on the host; null: nobody looks at the rows
  bool quiet = false;           // neither the pipeline's warnings nor how far the run is are shown
};

struct FeedResult {
  Report report;
  std::optional<Error> error;  // the Error that ended the run early
  bool interrupted = false;
  int replicas = 0;
  std::string resumed;  // the state from which the run continued; empty: none
  // Counted from the first batch after the warm-up; in a replay, from the first repeated batch.
  uint64_t records = 0;
  double next_wait_s = 0;  // how long next() waited, added over all replicas
  uint64_t steps = 0;      // the steps that every replica has made
  double wall_s = 0;
  double cpu_s = 0;
  // The peak of RssAnon + RssShmem above what the process had before the feeder, in bytes, sampled every 20 ms.
  uint64_t rss_peak_bytes = 0;

  /// Returns `amount` per second; nullopt if the run was too short for a rate. The clock starts at the first batch,
  /// when more batches may already be ready.
  std::optional<double> per_second(uint64_t amount) const;
};

/// Returns the errors of a feed as a list. Its end is `last`, the error that ended the feed, unless the report has it.
Json errors_json(const Report& report, const std::optional<Error>& last);

/// Feeds the pipeline to one thread for each device; the threads do not look at the data. Shows how far it is, after
/// `title`: on a terminal as `top` does, elsewhere a line now and then. The signals of the caller's Interrupt end the
/// feed. Throws Error if the feeder cannot be made or cannot be set to its state.
FeedResult feed(const Pipeline& pipeline, Options options, const FeedOptions& how, const std::string& title);

}  // namespace feedline::tool
