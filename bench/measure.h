// What the benches share: clocks, median, and a main that reports what went wrong.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <vector>

namespace feedline::bench {

/// Wall-clock time of `work()`.
double seconds(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// CPU time of the process in `work()`, all threads together.
double cpu_seconds(auto&& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

/// The upper one of an even number. `values` is not empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The exit status of `run`; 1 with its reason on stderr, when it throws.
int guarded(const char* name, auto&& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace feedline::bench
