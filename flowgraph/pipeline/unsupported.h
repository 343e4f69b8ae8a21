// Fields of pipeline.proto that this version does not have yet.
#pragma once

#include <string>

#include "feedline_pipeline.pb.h"

namespace feedline::flow {

/// Throws Error bad_pipeline for the first such field that is set, with what works instead; also for text that is no
/// UTF-8 and for numbers that stand for no value of an enum.
void refuse_unsupported(const config::Pipeline& pipeline);

/// How the user knows an element of a repeated message: "output 'board'", "feature[2]", "source" where it is the only
/// one.
std::string element_path(const std::string& field, int index, int count, const std::string& name);

}  // namespace feedline::flow
