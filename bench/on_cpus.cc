#include "on_cpus.h"

#include <fmt/format.h>
#include <sched.h>

#include <barrier>
#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

namespace feedline::bench {

std::vector<int> choose_cpus(size_t count) {
  cpu_set_t usable;
  sched_getaffinity(0, sizeof usable, &usable);
  if (count < 1 || count > static_cast<size_t>(CPU_COUNT(&usable)))
    throw std::invalid_argument(fmt::format("--threads {}: there are {} CPUs", count, CPU_COUNT(&usable)));
  std::vector<int> cpus;
  for (int cpu = sched_getcpu(); cpus.size() < count; cpu = (cpu + 1) % CPU_SETSIZE)
    if (CPU_ISSET(cpu, &usable)) cpus.push_back(cpu);
  return cpus;
}

void pin(pid_t thread, Cpus cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(cpu, &set);
  sched_setaffinity(thread, sizeof set, &set);
}

void pin_all(Cpus cpus) {
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
    pin(std::stoi(thread.path().filename()), cpus);
}

double rate_on_each(Cpus cpus, const std::function<uint64_t(size_t)>& work) {
  std::vector<double> rates(cpus.size());
  std::barrier start(static_cast<ptrdiff_t>(cpus.size()));
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < cpus.size(); t++)
    threads.emplace_back([&, t] {
      pin(0, cpus.subspan(t, 1));
      start.arrive_and_wait();
      rates[t] = rate([&] { return work(t); });
    });
  threads.clear();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

double rate_of_loop(const Loop& loop, std::vector<Worker>& workers, Cpus cpus) {
  return rate_on_each(cpus, [&](size_t t) { return loop(workers[t]); });
}

}  // namespace feedline::bench
