// Measures rates on chosen CPUs: binds threads to them and repeats the work until it takes long enough to measure.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ceilings.h"
#include "measure.h"

namespace feedline::bench {

using Cpus = std::span<const int>;

/// Processes some or all of the worker's records once, and returns their number.
using Loop = std::function<uint64_t(Worker&)>;

/// Returns `count` usable CPUs: the one on which the caller runs and those after it. Throws std::invalid_argument if
/// there are fewer.
std::vector<int> choose_cpus(size_t count);
/// Binds a thread to the CPUs; 0 is the calling thread.
void pin(pid_t thread, Cpus cpus);
/// Binds all threads of the process to the CPUs, also those of feeders and oneTBB.
void pin_all(Cpus cpus);

/// Repeats work(), which returns the number of records that it processed, for at least 0.15 s. Returns records/s. The
/// first call is not measured, because an idle feeder has batches ready. `clock(work)` runs work() and returns its time
/// in seconds.
double rate(auto&& work, auto&& clock) {
  constexpr double measured_s = 0.15;
  work();
  uint64_t records = 0;
  double took_s = 0;
  do took_s += clock([&] { records += work(); });
  while (took_s < measured_s);
  return static_cast<double>(records) / took_s;
}
double rate(auto&& work) {
  return rate(work, [](auto&& timed) { return seconds(timed); });
}

/// Runs work(t) for t = 0, 1, ... at once, each on a CPU of its own, as rate() does. Returns the sum of their rates.
double rate_on_each(Cpus cpus, const std::function<uint64_t(size_t)>& work);
/// Runs the loop on all CPUs at once, each with its own worker. Returns the sum of their rates.
double rate_of_loop(const Loop& loop, std::vector<Worker>& workers, Cpus cpus);

}  // namespace feedline::bench
