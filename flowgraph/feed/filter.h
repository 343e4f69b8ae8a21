// Finds the samples that a pipeline's filter keeps, and the groups that its window.key makes of them.
#pragma once

#include <functional>
#include <string>

#include "feedline/io_options.h"
#include "flowgraph/data/data_set.h"

namespace feedline::flow {

struct FilterRun {
  int threads = 1;
  IoOptions io;
  std::function<void(uint64_t done, uint64_t total)> on_progress;  // bytes of files, in proportion to samples
};

/// Removes the samples for which the filter is 0, and marks the remaining ones at which the window key changes. Reads
/// and evaluates all samples once. The answer is kept in index.dir, or in the user's cache folder. Its name is made of
/// the digests of the data and of everything that the answer depends on. Records that are found bad are then no
/// samples, like those that were known to be bad before; with RAISE the first of them is thrown. Does nothing if there
/// is neither a filter nor a key.
void apply_filter(const PipelineSpec& spec, DataSet& data, const FilterRun& run);

}  // namespace feedline::flow
