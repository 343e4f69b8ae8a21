// Statistics of all outputs of a pipeline over its data, or over a sample of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "feedline/feeder.h"
#include "feedline/pipeline.h"
#include "tool/stats/output_stats.h"
#include "tool/stats/sample_size.h"

namespace feedline::tool {

struct CollectedStats {
  std::vector<OutputStats> outputs;  // after settle()
  uint64_t samples = 0;              // how many were counted, over all ranks
  int64_t samples_of_data = -1;      // how many the epoch has; -1: unknown
  uint64_t bad_records = 0;          // over all ranks; if a sample was taken, only those in the sample
  /// If a sample was taken: the bad records that were found in all the data before the sample was drawn. Otherwise 0,
  /// because bad_records includes them.
  uint64_t bad_records_of_data = 0;
  Report report;                                             // of this rank's feed, with the audit of all ranks
  std::map<std::string, std::vector<std::string>> features;  // see StatsPipeline
  /// The features that records may lack, and how many of `missing_of` records lacked each. The `missing_of` records are
  /// those that were read for the samples. If several ranks read the same records, each rank counts them. Empty: it is
  /// not known.
  std::map<std::string, uint64_t> missing;
  uint64_t missing_of = 0;
};

/// Feeds the pipeline once, to as many threads as this process has CPUs, and returns the statistics of what it
/// delivers. With Options::communicator the ranks share the work: all ranks must make this call, and each gets the
/// statistics of all. Shows progress. The result does not depend on the number of threads and ranks, except for how
/// many bad records are found during the feed if the pipeline has windows, or an epoch without an end. Throws the Error
/// of the feed, and Error stalled after an interrupt.
///
/// With `sample`, only a random part of the samples is counted. Each sample of the data is drawn with the same
/// probability, and at most once. Every call draws the same samples.
CollectedStats collect_stats(const Pipeline& pipeline, Options options, const std::optional<SampleSize>& sample);

/// Returns the statistics as `feedline stats --json` prints them, but without `feedline_json`. docs/statistics.md lists
/// the keys. The table, the page and the comparison for drift are made of this document.
Json stats_json(const CollectedStats& stats, const Pipeline& pipeline, const std::optional<SampleSize>& sample);

}  // namespace feedline::tool
