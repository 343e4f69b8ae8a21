// The pipeline that is fed to compute statistics: the given one, in an order and in batches that suit this purpose.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "feedline/pipeline.h"
#include "feedline/tensor.h"

namespace feedline::tool {

struct StatsPipeline {
  /// One pass over the data in file order, or in random order for a sample. A pipeline whose epoch has no natural end
  /// (a mixture with CYCLE_FOREVER) keeps its steps and its batches. The last batch is padded, all ranks split the
  /// data, and batches are small. What is delivered is not changed, except for outputs that would be padded to the
  /// longest row of a batch. These outputs are ragged here, because padding is not data. Pictures among them are not
  /// decoded.
  Pipeline pipeline;
  /// For each output that is made of features, by name: these features. A stack has one for each column.
  std::map<std::string, std::vector<std::string>> features;
  /// For each output that is padded in the given pipeline, by name: the shape of a step.
  std::map<std::string, Shape> steps;
  int64_t rows = 0;  // rows of a batch; 0: as in the given pipeline
};

/// Returns the pipeline for statistics that `threads` threads of this process collect. With `sample`, the first samples
/// that the returned pipeline feeds are a random sample of the data, the same at each call. Throws Error bad_pipeline
/// if the given pipeline makes no sense, or if a sample is wanted and the data has no end.
StatsPipeline for_stats(const Pipeline& given, bool sample, unsigned threads);

}  // namespace feedline::tool
