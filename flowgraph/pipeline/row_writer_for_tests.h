// How tests give outputs a writer of their own.
#pragma once

#include <memory>

#include "flowgraph/rows/row_writer.h"

namespace feedline::flow {

struct OutputSpec;

/// Tests set this function. Its result becomes the writer of each output with one job, in place of the pipeline's own;
/// a null result means that the job's UnpackSpec makes the rows. If the function is null, outputs are made as the
/// pipeline says.
inline std::shared_ptr<const RowWriter> (*row_writer_for_tests)(const OutputSpec& output) = nullptr;

}  // namespace feedline::flow
