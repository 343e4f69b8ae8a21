// Checks what a pipeline says of its cache.
#pragma once

#include "feedline/pipeline.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Sets spec.cache. Must be called before the outputs are resolved, because they read it. Throws Error bad_pipeline if
/// a field of `cache` is wrong.
void resolve_cache(const Pipeline& pipeline, PipelineSpec& spec);

/// Throws Error bad_pipeline if there is a cache and it could keep nothing of any output.
void check_cache_keeps(const PipelineSpec& spec);

}  // namespace feedline::flow
