// How a fuzz target says that something does not hold.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace feedline::test {

/// Ends the program if `holds` is false, with `what` as the reason.
inline void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace feedline::test
