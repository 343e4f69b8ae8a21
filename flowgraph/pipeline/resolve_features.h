// Checks the features of a pipeline, which say what is read out of each record.
#pragma once

#include <vector>

#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Returns the features of a pipeline. Throws Error bad_pipeline, which names the feature and its field.
std::vector<FeatureSpec> resolve_features(const config::Pipeline& pipeline, RecordType record_type);

/// Returns a list of axes as a shape. Throws Error bad_pipeline, which names `path`, if there are more than `most_axes`
/// axes, an axis is shorter than `least`, or the shape has more than 2^31 elements.
Shape resolve_shape(const google::protobuf::RepeatedField<int64_t>& axes, const std::string& path, int64_t least,
                    size_t most_axes = Shape::max_rank);

/// Returns a DType of pipeline.proto as a DType of the library. Their numbers are the same.
inline DType to_dtype(config::DType dtype) { return static_cast<DType>(dtype); }

}  // namespace feedline::flow
