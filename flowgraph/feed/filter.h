// Finds the samples that pass a pipeline's filter, and the samples at which the value of its window.key changes.
#pragma once

#include <functional>

#include "feedline/io_options.h"
#include "flowgraph/data/data_set.h"

namespace feedline::flow {

struct FilterRun {
  int threads = 1;
  IoOptions io;
  // `done` and `total` are bytes of files. `done` is in proportion to the samples that were read.
  std::function<void(uint64_t done, uint64_t total)> on_progress;
};

/// Removes from `data` the samples for which the filter is 0, and marks the remaining samples at which the value of
/// window.key changes. Reads and evaluates all samples once, and stores the answer in a file in index.dir, or in the
/// user's cache folder. The name of the file is a digest of the data and of everything else that the answer depends on.
/// A record that is found bad is not a sample any more, like the records that were found bad when the data was counted.
/// With `on_error: RAISE`, throws the Error of the first such record. Does nothing if the pipeline has neither a filter
/// nor a key.
void apply_filter(const PipelineSpec& spec, DataSet& data, const FilterRun& run);

}  // namespace feedline::flow
