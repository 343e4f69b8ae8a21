// The report of what a feeder has done, as values and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "feedline/epoch_audit.h"
#include "feedline/error.h"
#include "feedline/export.h"
#include "feedline/stage_report.h"

namespace feedline {

/// What the feeder has done since it was made, or since set_state(), set_epoch() or set_weights() last moved it.
/// report() may be called from any thread; the counters are exact when no next() is running.
struct Report {
  /// Whether the trainer or the feed is the slower one, by how much, and what to do about it, in one or two sentences.
  std::string verdict;
  std::optional<Error> error;  // the Error that every further next() throws, also after stop(); none: the feed goes on
  int rank = 0, world_size = 1;
  int replicas = 0;             // the replicas of this rank
  int threads = 0;              // the feed's threads on this rank; 0 if another rank reads for it
  uint64_t memory_planned = 0;  // bytes of host memory that the feed's plan has; 0 if another rank reads for this one
  /// Where the replica is that is furthest behind: the steps of its epoch that it has received.
  uint64_t epoch = 0;
  int64_t step = 0;
  int64_t steps_per_epoch = -1;  // as Feeder::steps_per_epoch()
  uint64_t records = 0;          // samples that were delivered, without filler
  uint64_t steps = 0;            // steps that all replicas have received
  uint64_t dropped = 0;          // samples that DROP left out of the finished epochs
  uint64_t filler = 0;           // rows that were padding or replaced a bad record
  uint64_t errors_total = 0;     // bad records, and bad regions and files
  uint64_t skipped_total = 0;    // of these, what was found when the data was counted
  std::vector<Error> errors;     // the first 100 bad records, in the order in which they were found
  /// A checksum of the set of samples that were delivered, whatever their order: the sum mod 2^64, over the delivered
  /// samples, of the key of their file times mix64(mix64(offset of the record) ^ stored CRC) (base/audit.h). The audits
  /// of several replicas and ranks can be added.
  uint64_t audit = 0;
  std::optional<EpochAudit> last_epoch;  // whether the last finished epoch was complete
  uint64_t differing_epochs = 0;         // epochs whose sum of hashes differs from that of the indexes; should be 0
  /// The features that records may lack, and how many of `missing_of` records lacked each: the records that this rank
  /// has read for the last epoch that any replica has finished. Empty before that. A rank may read records of which
  /// other ranks are given the rows.
  std::vector<std::pair<std::string, uint64_t>> missing;
  uint64_t missing_of = 0;
  uint64_t bytes_read = 0;  // bytes read from files for the feed, without the counting pass
  /// The bytes that the records parsed so far take in the files, by the mean over the data. bytes_read is more if the
  /// order makes the feed read records that it does not need then. 0 with index.mode LAZY.
  uint64_t bytes_needed = 0;
  std::string distribute_mode;      // `distribute.mode` of the pipeline
  uint64_t bytes_sent = 0;          // bytes of packed rows sent, counted for each receiving rank
  uint64_t bytes_received = 0;      // bytes of packed rows that other ranks sent
  uint64_t bytes_copied = 0;        // bytes copied from the host to GPUs
  uint64_t bytes_between_gpus = 0;  // REPLICATE: bytes copied between the GPUs of this process
  uint64_t layout_hits = 0;         // records with the same byte layout as the record before
  uint64_t decode_warnings = 0;     // warnings that libjpeg and libpng gave of pictures that they could decode
  /// What the cache has done, if the pipeline has one.
  struct Cache {
    double share = 0;  // the planned part of the samples that is kept; 0: the cache is off
    // Rows of outputs, or with RECORDS records, that were found in it or not. Those that were read ahead are counted,
    // too.
    uint64_t hits = 0, misses = 0;
    uint64_t entries = 0, bytes = 0;  // what the feeder has put in since it was made
  };
  std::optional<Cache> cache;
  double count_s = 0;        // seconds that the counting pass took
  double first_batch_s = 0;  // seconds from construction to the first batch
  double wall_s = 0;         // seconds since the first batch
  /// Microseconds that next() took for each batch, without each replica's first one. Calls that returned
  /// Next::not_ready after they had waited count as part of the call that got the batch.
  struct {
    double p50 = 0, p99 = 0, max = 0;
    /// The buckets that have calls, in ascending order: the bucket's upper bound, and the number of calls in it.
    std::vector<std::pair<double, uint64_t>> histogram;
  } next_us;
  double data_readiness = 1;  // the share of next() calls that found their batch ready
  /// Seconds that next() has waited, added over all replicas, since the first batch (before the first batch: since the
  /// start).
  double next_wait_s = 0;
  /// next_wait_s divided by wall_s and by the number of threads that call next(), 0 to 1: the share of their time that
  /// the trainers have lost.
  double next_wait_share = 0;
  /// next_wait_s, split by the stage that next() waited for, the longest wait first.
  std::vector<std::pair<std::string, double>> waited_s;
  std::string waited_for;  // the first stage of waited_s; empty if every call of next() found its batch ready
  std::vector<std::pair<std::string, std::string>> outputs;  // for each output, its name and where it is made, in words
  std::string backend;                                       // what reads the files, and why it was chosen
  std::vector<StageReport> stages;
};

/// Returns the report as a JSON document, which ends with a line end. Its first key is `feedline_json`, the version of
/// the documents; docs/questions.md lists the others, which have the names and units of the fields above.
FEEDLINE_PUBLIC std::string to_json(const Report& report);

}  // namespace feedline
