// Checks outputs and formulas, and replaces names by numbers: of features, of expressions, and in a gpu::UnpackSpec.
#pragma once

#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Fills in `outputs`, `expressions` and `warnings` of a spec that has its features. Sets the length of bytes features
/// if a decode_raw determines it. Throws Error bad_pipeline, which names the output and its field.
void resolve_outputs(const config::Pipeline& pipeline, PipelineSpec& spec);

/// Returns the UnpackSpec of a row-major tensor as it lies in memory. The caller must set `out`.
gpu::UnpackSpec stored_elements(DType stored, const Shape& shape);

}  // namespace feedline::flow
