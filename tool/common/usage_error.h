// The error for wrong usage that the parser of the command line (CLI11) cannot detect.
#pragma once

#include <stdexcept>

namespace feedline::cli {

/// Wrong usage, for example flags that do not go together, or values that this version does not have.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace feedline::cli
