#include "base/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/parse.h"

namespace feedline {
namespace {

SimdLevel highest_of_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // __builtin_cpu_supports() of clang 14 does not know all features of these levels, so some are read from CPUID
  // itself.
  unsigned eax = 0, ebx = 0, of_1 = 0, of_80000001 = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &of_1, &edx) == 0 || __get_cpuid(0x80000001, &eax, &ebx, &of_80000001, &edx) == 0)
    return SimdLevel::portable;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi") ||
      !__builtin_cpu_supports("bmi2") || (of_1 & bit_F16C) == 0 || (of_1 & bit_MOVBE) == 0 ||
      (of_80000001 & bit_LZCNT) == 0)
    return SimdLevel::portable;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi"))
    return SimdLevel::avx512;
  return SimdLevel::avx2;
#else
  return SimdLevel::portable;
#endif
}

SimdLevel highest() {
  const SimdLevel of_cpu = highest_of_cpu();
  const char* const wanted = std::getenv("FEEDLINE_SIMD");
  if (!wanted) return of_cpu;
  for (const SimdLevel level : {SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512})
    if (std::string_view(wanted) == name(level)) return std::min(level, of_cpu);
  log_warning(
      fmt::format("FEEDLINE_SIMD is '{}', which is not a SIMD level; set it to portable, avx2 or avx512. {} is used",
                  wanted, name(of_cpu)));
  return of_cpu;
}

std::atomic<SimdLevel> at_most{SimdLevel::avx512};

// Returns the cgroup folders whose limits apply to this process, innermost first: those of cgroup v2, whose line in
// /proc/self/cgroup is "0::/path", and those of `controller` of cgroup v1.
std::vector<std::string> cgroup_folders(const std::string& controller) {
  std::vector<std::string> folders;
  std::ifstream lines("/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    std::string root;
    if (controllers == ",,")
      root = "/sys/fs/cgroup";
    else if (controllers.find(fmt::format(",{},", controller)) != std::string::npos)
      root = "/sys/fs/cgroup/" + controller;
    else
      continue;
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      folders.push_back(root + path);
      if (path.empty() || path == "/") break;
    }
  }
  return folders;
}

// Returns the number at the beginning of `file`, or `otherwise` if there is none.
double read_number(const std::string& file, double otherwise) {
  std::ifstream in(file);
  double number = 0;
  return in >> number ? number : otherwise;
}

// Returns the number of CPUs in this process's affinity mask.
int allowed_cpus() {
  // The kernel refuses a mask that has fewer bits than the machine can have CPUs.
  for (size_t sets = 1; sets <= 1024; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
    if (errno != EINVAL) break;
  }
  return 1;
}

// The environment variables in which launchers say how many ranks they started on this machine. Slurm writes one number
// per node, as in "4(x2),3". That text is a plain number if there is one node; any other text is ignored. Slurm's
// variable for the step comes first, because the variable for the job is also set for a script that starts no ranks.
constexpr const char* rank_counts[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                       "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"};

unsigned ranks_here() {
  for (const char* name : rank_counts) {
    const char* const value = std::getenv(name);
    if (!value) continue;
    if (const auto ranks = parse_number<unsigned>(value).value_or(0); ranks > 0) return ranks;
  }
  return 1;
}

}  // namespace

SimdLevel simd_level() noexcept {
  static const SimdLevel best = highest();
  return std::min(best, at_most.load(std::memory_order_relaxed));
}

const char* name(SimdLevel level) noexcept {
  return level == SimdLevel::avx512 ? "avx512" : level == SimdLevel::avx2 ? "avx2" : "portable";
}

ScopedSimdLevel::ScopedSimdLevel(SimdLevel level) noexcept : before_(at_most.exchange(level)) {}

ScopedSimdLevel::~ScopedSimdLevel() { at_most = before_; }

unsigned usable_cpus() {
  double cpus = allowed_cpus();
  for (const std::string& folder : cgroup_folders("cpu")) {
    std::ifstream v2(folder + "/cpu.max");  // "QUOTA PERIOD", or "max PERIOD"
    double quota = -1, period = 0;
    if (!(v2 >> quota >> period)) {
      quota = read_number(folder + "/cpu.cfs_quota_us", -1);
      period = read_number(folder + "/cpu.cfs_period_us", 0);
    }
    if (quota > 0 && period > 0) cpus = std::min(cpus, std::ceil(quota / period));
  }
  return std::max(1u, static_cast<unsigned>(cpus));
}

unsigned cpus_of_this_rank() {
  const bool bound = allowed_cpus() < sysconf(_SC_NPROCESSORS_ONLN);
  return std::max(1u, usable_cpus() / (bound ? 1 : ranks_here()));
}

uint64_t usable_memory() {
  struct sysinfo info {};
  double bytes = sysinfo(&info) == 0 ? static_cast<double>(info.totalram) * info.mem_unit : 0x1p30;
  for (const std::string& folder : cgroup_folders("memory"))
    for (const char* file : {"/memory.max", "/memory.limit_in_bytes"})
      bytes = std::min(bytes, read_number(folder + file, bytes));  // a file that says "max" sets no limit
  return static_cast<uint64_t>(bytes);
}

uint64_t own_memory() {
  std::ifstream status("/proc/self/status");
  uint64_t bytes = 0;
  for (std::string key, rest; status >> key && std::getline(status, rest);)
    if (key == "RssAnon:" || key == "RssShmem:") bytes += std::stoull(rest) * 1024;  // "  1234 kB"
  return bytes;
}

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

uint64_t last_level_cache() {
  // sysconf(3) cannot be used: if the machine has several such caches, it returns the sum of their sizes.
  uint64_t kib = 8 << 10;
  for (const char* level : {"2", "3"})
    kib = static_cast<uint64_t>(read_number(std::string("/sys/devices/system/cpu/cpu0/cache/index") + level + "/size",
                                            static_cast<double>(kib)));
  return kib << 10;
}

}  // namespace feedline
