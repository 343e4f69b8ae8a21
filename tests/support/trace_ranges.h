// The NVTX ranges that a program's threads have been in: who links trace_ranges.cc listens as a profiler does.
#pragma once

#include <set>
#include <string>

namespace feedline::test {

/// Names, since the program began.
std::set<std::string> trace_ranges();

}  // namespace feedline::test
