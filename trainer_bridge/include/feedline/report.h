// The report of what a feeder has done, as values and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "feedline/counters.h"
#include "feedline/epoch_audit.h"
#include "feedline/error.h"
#include "feedline/export.h"
#include "feedline/stage_report.h"

namespace feedline {

/// What the feeder has done since it was made, or since set_state(), set_epoch() or set_weights() last moved it.
/// report() may be called from any thread; the counters are exact when no next() is running.
struct Report : Counters {
  /// Says, in one or two sentences, whether the trainer or the feed is slower, by how much, and what to do about it.
  std::string verdict;
  std::optional<Error> error;  // the Error that every further next() throws, also after stop(); none: the feed runs
  int rank = 0, world_size = 1;
  uint64_t skipped_total = 0;  // how many of bad_records were found when the data was counted
  std::vector<Error> errors;   // the first 100 bad records, in the order in which they were found
  /// A checksum of the set of samples that were delivered, whatever their order: the sum mod 2^64, over the delivered
  /// samples, of the key of their file times mix64(mix64(offset of the record) ^ stored CRC) (base/audit.h). The audits
  /// of several replicas and ranks can be added.
  uint64_t audit = 0;
  std::optional<EpochAudit> last_epoch;  // whether the last finished epoch was complete
  /// For each feature that records may lack: its name, and how many of `missing_of` records lacked it. These records
  /// are those that this rank has read for the last epoch that any replica has finished, even if other ranks are given
  /// their rows. Before the first such epoch this is empty.
  std::vector<std::pair<std::string, uint64_t>> missing;
  uint64_t missing_of = 0;
  std::string distribute_mode;        // `distribute.mode` of the pipeline
  std::optional<double> cache_share;  // the planned share of the samples that the cache keeps; none: no cache
  double count_s = 0;                 // seconds that the counting pass took
  double first_batch_s = 0;           // seconds from construction to the first batch
  double wall_s = 0;                  // seconds since the first batch
  /// Microseconds that next() took for each batch, without each replica's first one. Calls that returned
  /// Next::not_ready after they had waited count as part of the call that got the batch.
  struct {
    double p50 = 0, p99 = 0, max = 0;
    /// The buckets that have calls, in ascending order: the bucket's upper bound, and the number of calls in it.
    std::vector<std::pair<double, uint64_t>> histogram;
  } next_us;
  /// Seconds that next() has waited, added over all replicas, since the first batch (before the first batch: since the
  /// start). Divided by wall_s and by the number of threads that call next(), it is next_wait_ratio.
  double next_wait_s = 0;
  /// next_wait_s, split by the stage that next() waited for, the longest wait first.
  std::vector<std::pair<std::string, double>> waited_s;
  std::string waited_for;  // the first stage of waited_s; empty if every call of next() found its batch ready
  std::vector<std::pair<std::string, std::string>> outputs;  // for each output, its name and where it is made, in words
  std::string backend;                                       // what reads the files, and why it was chosen
  std::vector<StageReport> stages;
};

/// Returns the report as a JSON document, which ends with a line end. Its first key is `feedline_json`, the version of
/// the documents; docs/questions.md lists the others, which have the names and units of the fields above. Until version
/// 0.2, counters whose names have changed are also there under their former names.
FEEDLINE_PUBLIC std::string to_json(const Report& report);

}  // namespace feedline
