// Skips a test case if the machine lacks something that the case needs.
#pragma once

#include <cstdio>
#include <string>

namespace feedline::test {

void note_skip();

/// Prints the reason and counts the case as skipped. Write `return skip("...")` in a case that returns void. A program
/// that skipped all of its cases exits with 77.
inline void skip(const std::string& reason) {
  std::printf("skipped: %s\n", reason.c_str());
  note_skip();
}

}  // namespace feedline::test
