// Makes rows of a few records to find out whether the data fits a pipeline.
#pragma once

#include <cstdint>

#include "feedline/tried_records.h"
#include "flowgraph/data/data_set.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/table/table.h"

namespace feedline::flow {

/// Parses the first `of_each_file` samples of each file. If there are more than 128 files, takes only 128 files, at
/// equal distances. Computes the formulas of these samples, and makes their rows. Rows that take long to make, such as
/// decoded pictures, are made of at most 256 samples. Reads at most 256 MiB. Throws Error io_error if a file cannot be
/// read. `tables` are the pipeline's open tables.
TriedRecords try_records(const PipelineSpec& spec, const Tables& tables, const DataSet& data, uint64_t of_each_file);

}  // namespace feedline::flow
