// Statistics of all outputs of a pipeline over its data, or over a sample of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "feedline/feeder.h"
#include "feedline/pipeline.h"
#include "tool/stats/output_stats.h"
#include "tool/stats/sample_size.h"

namespace feedline::tool {

struct CollectedStats {
  std::vector<OutputStats> outputs;  // settled
  uint64_t samples = 0;              // how many were counted, over all ranks
  int64_t samples_of_data = -1;      // how many the epoch has; -1: unknown
  uint64_t bad_records = 0;          // of the samples that were to be counted, over all ranks
  /// Of a sample: what was found bad in all the data before the sample was drawn. Otherwise bad_records has it.
  uint64_t bad_records_of_data = 0;
  Report report;                                             // of this rank's feed, with the audit of all ranks
  std::map<std::string, std::vector<std::string>> features;  // see StatsPipeline
  /// The features that records may lack, and how many of `missing_of` records lacked each. These are the records that
  /// were read for the samples; ranks that all read the same ones count them several times. Empty: it is not known.
  std::map<std::string, uint64_t> missing;
  uint64_t missing_of = 0;
};

/// Feeds the pipeline once, to as many threads as this process has CPUs, and returns the statistics of what it
/// delivers. With Options::communicator the ranks share the work, and each is given the statistics of all; all must
/// call it. Shows how far it is. The result is the same whatever the number of threads and ranks. Throws Error if the
/// feed does, and Error stalled after an interrupt.
///
/// A sample is drawn at random, each sample of the data with the same probability and none twice; it is the same one at
/// each call.
CollectedStats collect_stats(const Pipeline& pipeline, Options options, const std::optional<SampleSize>& sample);

}  // namespace feedline::tool
