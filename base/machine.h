// What this process may use of the machine it runs on.
#pragma once

#include <cstdint>

namespace feedline {

/// Instruction sets that hand-written kernels exist for, each including the ones before it.
/// avx512 means F, BW, DQ, VL and VBMI (Ice Lake, Zen 4 and later).
enum class SimdLevel : uint8_t { portable, avx2, avx512 };

/// The best level of this CPU, unless a ScopedSimdLevel holds it lower.
SimdLevel simd_level() noexcept;

const char* name(SimdLevel level) noexcept;

/// For tests: while it lives, simd_level() is at most `level`. Not for use beside running pipelines.
class ScopedSimdLevel {
 public:
  explicit ScopedSimdLevel(SimdLevel level) noexcept;
  ~ScopedSimdLevel();
  ScopedSimdLevel(const ScopedSimdLevel&) = delete;
  ScopedSimdLevel& operator=(const ScopedSimdLevel&) = delete;

 private:
  SimdLevel before_;
};

/// CPUs in this process's affinity mask, at most what its cgroup's quota pays for, rounded up; at least 1.
unsigned usable_cpus();

/// The share of usable_cpus() of one of the ranks that a launcher has started on this machine: their number is told by
/// the environment of torchrun, Open MPI, MPICH and Intel MPI, or Slurm. A launcher that gave each rank CPUs of its own
/// has divided already: where the affinity mask is smaller than the machine, it is all for this process. At least 1.
unsigned cpus_of_this_rank();

/// Bytes of memory this process may use: the tightest limit of its cgroups, else what is installed.
uint64_t usable_memory();

/// Bytes of the first CPU's last-level cache; where the system does not say, what small machines have.
uint64_t last_level_cache();

}  // namespace feedline
