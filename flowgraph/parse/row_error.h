// The error of a record that a parser refuses.
#pragma once

#include <cstdint>
#include <string>

#include "feedline/error.h"

namespace feedline::flow {

/// A record that the parser refused. `message` says what was found and what was wanted.
struct RowError {
  uint32_t row = 0;
  Category category = Category::malformed_proto;
  int feature = -1;  // number of the feature, or -1 for the record as a whole
  std::string message;
};

}  // namespace feedline::flow
