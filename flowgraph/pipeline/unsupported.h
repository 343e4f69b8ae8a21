// Refuses fields of pipeline.proto that this version does not support yet.
#pragma once

#include <string>

#include "feedline_pipeline.pb.h"

namespace feedline::flow {

/// Throws Error bad_pipeline if a field is set that this version does not support; the error says what works instead.
/// Also throws it for text that is not UTF-8, and for a number that is not a value of its enum.
void refuse_unsupported(const config::Pipeline& pipeline);

/// Returns what messages call an element of a repeated field: "output 'board'" if it has a name, else "feature[2]", or
/// "source" if it is the only element.
std::string element_path(const std::string& field, int index, int count, const std::string& name);

}  // namespace feedline::flow
