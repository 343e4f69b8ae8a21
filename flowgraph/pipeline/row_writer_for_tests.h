// How tests give outputs a writer of their own.
#pragma once

#include <memory>

#include "flowgraph/rows/row_writer.h"

namespace feedline::flow {

struct OutputSpec;

/// Tests set this. Null, or a null result: the output is made as the pipeline says.
inline std::shared_ptr<const RowWriter> (*row_writer_for_tests)(const OutputSpec& output) = nullptr;

}  // namespace feedline::flow
