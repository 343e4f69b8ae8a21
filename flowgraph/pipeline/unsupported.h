// Refuses fields of pipeline.proto that this version does not have yet.
#pragma once

#include <string>

#include "feedline_pipeline.pb.h"

namespace feedline::flow {

/// Throws Error bad_pipeline for the first such field that is set; the error says what works instead. Also throws it
/// for text that is not UTF-8 and for numbers that stand for no value of an enum.
void refuse_unsupported(const config::Pipeline& pipeline);

/// Returns how the user knows an element of a repeated message: "output 'board'", "feature[2]", or "source" if it is
/// the only one.
std::string element_path(const std::string& field, int index, int count, const std::string& name);

}  // namespace feedline::flow
