// Leaving out a test case where the machine lacks what it needs.
#pragma once

#include <cstdio>
#include <string>

namespace feedline::test {

void note_skip();

/// Prints the reason; write `return skip("...")` in a case that returns void. A program all of whose cases skip exits
/// with 77.
inline void skip(const std::string& reason) {
  std::printf("skipped: %s\n", reason.c_str());
  note_skip();
}

}  // namespace feedline::test
