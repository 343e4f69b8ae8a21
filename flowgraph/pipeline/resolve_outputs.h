// Outputs and formulas, resolved to numbers of features and to gpu::UnpackSpec.
#pragma once

#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Fills in `outputs`, `expressions` and warnings of a spec that has its features, and lengths of bytes features that
/// decode_raw fixes. Throws Error bad_pipeline, naming the output and its field.
void resolve_outputs(const config::Pipeline& pipeline, PipelineSpec& spec);

/// A row-major tensor as it lies in memory; `out` is for the caller to say.
gpu::UnpackSpec stored_elements(DType stored, const Shape& shape);

}  // namespace feedline::flow
