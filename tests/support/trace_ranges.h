// Records the NVTX ranges that the threads of a program enter. A program that links trace_ranges.cc listens to NVTX as
// a profiler does.
#pragma once

#include <set>
#include <string>

namespace feedline::test {

/// Returns the names of all ranges entered since the program began.
std::set<std::string> trace_ranges();

}  // namespace feedline::test
