// What is read of each record: the pipeline's `feature`, checked.
#pragma once

#include <vector>

#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Throws Error bad_pipeline, naming the feature and its field.
std::vector<FeatureSpec> resolve_features(const config::Pipeline& pipeline, RecordType record_type);

/// An axis list as a shape of at most `most_axes` axes, none shorter than `least`, and at most 2^31 elements.
Shape resolve_shape(const google::protobuf::RepeatedField<int64_t>& axes, const std::string& path, int64_t least,
                    size_t most_axes = Shape::max_rank);

/// DType of pipeline.proto. Their numbers are the same.
inline DType to_dtype(config::DType dtype) { return static_cast<DType>(dtype); }

}  // namespace feedline::flow
