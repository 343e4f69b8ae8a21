// Describes the outputs of a pipeline to users: as tensors of a batch (ElementSpec).
#pragma once

#include <vector>

#include "feedline/element_spec.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Returns an output of `spec` as it is in a batch.
ElementSpec element_of(const PipelineSpec& spec, const OutputSpec& output);

/// Returns all outputs that are delivered, in the pipeline's order, followed by the valid mask if the pipeline names
/// it.
std::vector<ElementSpec> elements_of(const PipelineSpec& spec);

}  // namespace feedline::flow
