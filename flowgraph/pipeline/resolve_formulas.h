// Compiles the formulas of a pipeline.
#pragma once

#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Compiles the expression of each output into `spec.expressions`, sorted so that each comes after those that it reads, and
/// sets their numbers in `spec.outputs`, which has an entry for each of `outputs`. Warns of internal outputs that no formula
/// reads. Throws Error bad_pipeline.
void resolve_formulas(const google::protobuf::RepeatedPtrField<config::Output>& outputs, PipelineSpec& spec);

}  // namespace feedline::flow
