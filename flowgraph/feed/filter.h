// The samples that a pipeline's filter keeps, and the groups that its window.key makes of them.
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

/// Leaves of the samples those for which the filter is not 0, and notes at which of these the key changes. Reads and
/// evaluates all of them, once: the answer is kept in index.dir, or in the user's cache folder, under a name made of
/// the digests of the data and of what the answer depends on. Bad records are no samples then, as those that were known
/// before; under RAISE the first of them is thrown. Does nothing where there is neither filter nor key.
void apply_filter(const PipelineSpec& spec, DataSet& data, const FilterRun& run);

}  // namespace feedline::flow
