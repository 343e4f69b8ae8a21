// The scalars of a batch as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "feedline/batch.h"
#include "feedline/element_spec.h"

namespace feedline::tool {

/// Returns the value of an output in a row: `3`, `0.25`, or bytes as a literal in quotes. With windows, an output of
/// numbers has a value for each frame. Returns nullopt if the output is not a scalar. `frames` is the number of frames
/// in a row, 1 without windows.
std::optional<std::string> scalar_text(const Batch& batch, const ElementSpec& element, int64_t row, int64_t frames);

}  // namespace feedline::tool
