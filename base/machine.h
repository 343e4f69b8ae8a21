// Finds out which SIMD instructions, CPUs, memory and cache the machine has, and how much of them this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace feedline {

/// The instruction sets for which code is compiled. `portable` is the instruction set of the build itself. Each level
/// includes the ones before it. avx2 is all of x86-64-v3, with FMA, BMI2 and F16C. avx512 is x86-64-v4 and VBMI (Ice
/// Lake, Zen 4 and later).
enum class SimdLevel : uint8_t { portable, avx2, avx512 };

/// Returns the highest level that this CPU has. The level is lower if the environment variable FEEDLINE_SIMD names a
/// lower one at the first call, or while a ScopedSimdLevel says so. Thread-safe.
SimdLevel simd_level() noexcept;

/// Returns "portable", "avx2" or "avx512".
const char* name(SimdLevel level) noexcept;

/// Limits simd_level() to `level`, for the whole process, while the object lives. For tests only, and not while a
/// pipeline runs.
class ScopedSimdLevel {
 public:
  explicit ScopedSimdLevel(SimdLevel level) noexcept;
  ~ScopedSimdLevel();
  ScopedSimdLevel(const ScopedSimdLevel&) = delete;
  ScopedSimdLevel& operator=(const ScopedSimdLevel&) = delete;

 private:
  SimdLevel before_;
};

/// Returns the number of CPUs in this process's affinity mask, limited by the CPU quota of its cgroups, which is
/// rounded up. At least 1.
unsigned usable_cpus();

/// Returns the number of CPUs for this process if a launcher has started several ranks on this machine: usable_cpus()
/// divided by the number of ranks here. The number of ranks comes from the environment variables that torchrun,
/// Open MPI, MPICH and Intel MPI, or Slurm set. If the affinity mask is smaller than the machine, the result is
/// usable_cpus(), because the launcher has then already given each rank its own CPUs. At least 1.
unsigned cpus_of_this_rank();

/// Returns the bytes of memory that this process may use: the lowest limit of its cgroups, but not more than the memory
/// of the machine.
uint64_t usable_memory();

/// Returns the bytes of resident memory of this process, without mapped files: RssAnon + RssShmem of
/// proc_pid_status(5). Returns 0 if the system does not report them.
uint64_t own_memory();

/// Returns the boot ID: a text that the system chooses anew whenever the machine starts. Processes with the same boot
/// ID have the same steady clock, even in different containers. Returns an empty string if the system does not report
/// it.
std::string boot_id();

/// Returns the size in bytes of the first CPU's last-level cache. If the system does not report it, returns 8 MiB, a
/// size that small machines have.
uint64_t last_level_cache();

}  // namespace feedline
