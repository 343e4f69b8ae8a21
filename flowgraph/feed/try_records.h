// Parses a few records to find out whether the data fits the features of a pipeline.
#pragma once

#include <cstdint>

#include "feedline/tried_records.h"
#include "flowgraph/data/data_set.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Parses the first `of_each_file` samples of each file, or of 128 files from all over the data if there are more.
/// Reads no more than 256 MiB. Throws Error io_error if a file cannot be read.
TriedRecords try_records(const PipelineSpec& spec, const DataSet& data, uint64_t of_each_file);

}  // namespace feedline::flow
