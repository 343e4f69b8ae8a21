// Rates on chosen CPUs: what binds threads to them, and repeats a work until it can be measured.
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

/// Goes once through the worker's records, all or some, and says how many these were.
using Loop = std::function<uint64_t(Worker&)>;

/// The CPU that this runs on, and those behind it. Throws std::invalid_argument where there are not so many.
std::vector<int> choose_cpus(size_t count);
/// thread: 0, the calling one.
void pin(pid_t thread, Cpus cpus);
/// All threads of the process, also those of feeders and oneTBB.
void pin_all(Cpus cpus);

/// Repeats `work`, which returns how many records it went through, and gives records/s. Before that once unmeasured:
/// a feeder that was idle has batches ready.
double rate(auto&& work) {
  constexpr double measured_s = 0.15;
  work();
  uint64_t records = 0;
  double took_s = 0;
  do took_s += seconds([&] { records += work(); });
  while (took_s < measured_s);
  return static_cast<double>(records) / took_s;
}

/// On each of the CPUs at once, with a worker of its own: the sum.
double rate_of_loop(const Loop& loop, std::vector<Worker>& workers, Cpus cpus);

}  // namespace feedline::bench
