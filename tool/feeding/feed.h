// A trainer that only takes: the heart of `feedline run` and `demo`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "feedline/feeder.h"

namespace feedline::cli {

struct FeedOptions {
  uint64_t epochs = 1;  // up to this one
  uint64_t steps = 0;   // of each replica, in all; 0: those of the epochs
  double step_ms = 0;   // how long the trainer keeps a batch
  // After so many steps, the same batches again and again: what the trainer could do if data were free.
  uint64_t replay = 0;
  std::string state = {};  // a file to go on from, where there is one, and to keep what was trained in; empty: none
  double state_every_ms = 1000;
  bool accept_changes = false;  // see Feeder::set_state
};

struct FeedResult {
  Report report;
  std::optional<Error> error;  // what ended it early
  bool interrupted = false;
  int replicas = 0;
  std::string resumed;  // the state that it went on from; empty: none
  // Since the first batch; of a replay, since the first repeated one.
  uint64_t records = 0;
  uint64_t steps = 0;  // of every replica
  double wall_s = 0;
  double cpu_s = 0;
  uint64_t rss_peak_bytes = 0;  // RssAnon + RssShmem over what the process had before, sampled every 20 ms

  /// None: it was too short to tell. The clock starts at the first batch, when others are ready, too.
  std::optional<double> per_second(uint64_t amount) const;
};

/// The share of the replicas' time, 0 to 1, that they have waited inside next().
double waited_share(const Report& report, int replicas);

/// Feeds one thread for each device, which look at nothing, with a live line that begins with `title`.
/// Throws Error where the feeder cannot even be made or set to its state. SIGINT and SIGTERM end it.
FeedResult feed(const Pipeline& pipeline, Options options, const FeedOptions& how, const std::string& title);

}  // namespace feedline::cli
