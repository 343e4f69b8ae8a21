// Makes rows of a few records to find out whether the data fits a pipeline.
#pragma once

#include <cstdint>

#include "feedline/tried_records.h"
#include "flowgraph/data/data_set.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Parses the first `of_each_file` samples of each file, or of 128 files from all over the data if there are more,
/// computes their formulas, and makes their rows: of all, or, where that takes long, of 256 or one of each file. Reads no
/// more than 256 MiB. Throws Error io_error if a file cannot be read. Precondition: the pipeline's tables are open.
TriedRecords try_records(const PipelineSpec& spec, const DataSet& data, uint64_t of_each_file);

}  // namespace feedline::flow
