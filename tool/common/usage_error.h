// Wrong usage that the command line's parser cannot see.
#pragma once

#include <stdexcept>

namespace feedline::cli {

/// What CLI11 could not see by itself: flags that do not go together, values this version does not have.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace feedline::cli
