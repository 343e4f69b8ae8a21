// How many bytes a cache takes for a sample, if that depends on the sample.
#pragma once

#include "flowgraph/data/data_set.h"
#include "flowgraph/plan/cache_plan.h"

namespace feedline::flow {

/// Looks at some samples, spread over the data, and adds up what a cache would keep of each. The same data and pipeline
/// have the same answer, on every rank. Reads nothing if all entries have a size that is known. Throws Error io_error
/// if a file cannot be read.
KeptSizes measure_kept(const PipelineSpec& spec, const DataSet& data);

}  // namespace feedline::flow
