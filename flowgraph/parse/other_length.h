// The message about a value that has a different number of bytes than its feature wants.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Returns text that says what is wrong with a value whose number of bytes is not what `feature` wants, and what to do.
/// `holder` begins the sentence, as in "the record has".
inline std::string other_length(const std::string& holder, uint64_t bytes, const FeatureSpec& feature) {
  return feature.length_of.empty()
             ? fmt::format("{} {} bytes, but 'length' is {}; change 'length', or remove it if records differ in length",
                           holder, bytes, feature.length)
             : fmt::format(
                   "{} {} bytes, but output '{}' decodes {} bytes; change decode_raw.shape, or remove decode_raw if "
                   "records differ in length",
                   holder, bytes, feature.length_of, feature.length);
}

}  // namespace feedline::flow
