// The error for wrong usage that CLI11, the parser of the command line, cannot detect.
#pragma once

#include <stdexcept>

namespace feedline::tool {

/// Wrong usage, for example a flag that is missing, or a value that does not have the form that the flag wants.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace feedline::tool
