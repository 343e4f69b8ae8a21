// Says what is wrong with a row that a parser or a row writer refuses.
#pragma once

#include <cstdint>
#include <string>

#include "feedline/error.h"

namespace feedline::flow {

/// A row that cannot be made. `message` says what was found and what was wanted.
struct RowError {
  uint32_t row = 0;  // its number: in the chunk if a parser refused it, in the block if a row writer did
  Category category = Category::malformed_proto;
  int feature = -1;  // number of the feature, if a parser refused its values; -1 for the row as a whole
  std::string message;
};

}  // namespace feedline::flow
