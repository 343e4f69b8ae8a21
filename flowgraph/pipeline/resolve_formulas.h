// Compiles the formulas of a pipeline.
#pragma once

#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Compiles the expression of each output into `spec.expressions`, sorted so that each expression comes after the
/// expressions that it reads. Stores the index of an output's expression in the output's entry of `spec.outputs`.
/// Precondition: spec.outputs has an entry for each of `outputs`, in their order. Warns of internal outputs that no
/// formula reads. Throws Error bad_pipeline if a formula is wrong, or reads its own result.
void resolve_formulas(const google::protobuf::RepeatedPtrField<config::Output>& outputs, PipelineSpec& spec);

}  // namespace feedline::flow
