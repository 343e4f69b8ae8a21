// Tells from a few records whether records are what a pipeline's features say.
#pragma once

#include <cstdint>

#include "feedline/tried_records.h"
#include "flowgraph/data/data_set.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Parses the first `of_each_file` samples of each file. If there are many files, takes some from all over the data.
/// Reads no more than 256 MiB of them. Throws Error io_error if a file cannot be read.
TriedRecords try_records(const PipelineSpec& spec, const DataSet& data, uint64_t of_each_file);

}  // namespace feedline::flow
