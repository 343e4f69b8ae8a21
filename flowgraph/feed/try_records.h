// Whether records are what a pipeline's features say, told from a few of them.
#pragma once

#include <cstdint>

#include "feedline/tried_records.h"
#include "flowgraph/data/data_set.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Parses the first `of_each_file` samples of each file. Of many files it takes some, from all over the data, and it
/// reads no more than 256 MiB of them. Throws Error io_error.
TriedRecords try_records(const PipelineSpec& spec, const DataSet& data, uint64_t of_each_file);

}  // namespace feedline::flow
