// The error of a record that a parser refuses.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "feedline/error.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// A record that the parser refused. `message` says what was found and what was wanted.
struct RowError {
  uint32_t row = 0;
  Category category = Category::malformed_proto;
  int feature = -1;  // number of the feature, or -1 for the record as a whole
  std::string message;
};

/// Returns what is wrong with bytes whose number is not what `feature` wants, and what to do. `holder` begins the
/// sentence, as in "the record has".
inline std::string other_length(const std::string& holder, uint64_t bytes, const FeatureSpec& feature) {
  return feature.length_of.empty()
             ? fmt::format("{} {} bytes, length wants {}; change length, or remove it if records differ", holder, bytes,
                           feature.length)
             : fmt::format(
                   "{} {} bytes, but output '{}' decodes {}; change decode_raw.shape, or deliver the bytes as "
                   "they are if records differ",
                   holder, bytes, feature.length_of, feature.length);
}

}  // namespace feedline::flow
