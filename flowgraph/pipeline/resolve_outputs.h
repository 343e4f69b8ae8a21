// Checks outputs and formulas. Replaces the names of features and expressions by their numbers, and says in an
// unpack::UnpackSpec how values become an output.
#pragma once

#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Fills in `outputs`, `tables`, `expressions` and `warnings` of a spec that has its features already. Sets the length
/// of a BYTES feature if a decode_raw determines the length. Paths of tables are relative to `folder`. Throws Error
/// bad_pipeline, which names the output and its field, and Error io_error if a table cannot be read.
void resolve_outputs(const config::Pipeline& pipeline, const std::string& folder, PipelineSpec& spec);

}  // namespace feedline::flow
