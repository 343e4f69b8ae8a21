// Measures how many bytes a cache takes for a sample, if that depends on the sample.
#pragma once

#include "flowgraph/data/data_set.h"
#include "flowgraph/plan/cache_plan.h"

namespace feedline::flow {

/// Looks at some samples, spread over the data, and measures how many bytes a cache would keep of each. Returns the
/// same on every rank if data and pipeline are the same. Reads nothing if the size of every entry is known beforehand.
/// Throws Error io_error if a file cannot be read.
KeptSizes measure_kept(const PipelineSpec& spec, const DataSet& data);

}  // namespace feedline::flow
