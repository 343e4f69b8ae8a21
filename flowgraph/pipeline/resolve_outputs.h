// Checks outputs and formulas, and replaces names by numbers: of features, of expressions, and in a unpack::UnpackSpec.
#pragma once

#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Fills in `outputs`, `tables`, `expressions` and `warnings` of a spec that has its features. Sets the length of bytes
/// features if a decode_raw determines it. Paths of tables are relative to `folder`. Throws Error bad_pipeline, which
/// names the output and its field, and Error io_error if a table cannot be read.
void resolve_outputs(const config::Pipeline& pipeline, const std::string& folder, PipelineSpec& spec);

}  // namespace feedline::flow
