// How busy the GPUs of this machine are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace feedline::gpu {

/// What NVIDIA's management library says of a GPU, whoever uses it.
struct GpuUsage {
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // "GPU-..."
  /// The share of the last moments, a sixth of a second to a second, in which a kernel was running. nullopt: not told,
  /// as for a GPU that is divided (MIG).
  std::optional<double> busy;
  uint64_t memory_used = 0, memory_bytes = 0;  // of the GPU's memory, used and in all
  /// The link to the host: its generation at full speed (idle GPUs lower it), and of how many lanes the GPU uses how
  /// many. A card in a slot with few lanes is fed slowly. 0: not told.
  unsigned pcie_generation = 0, pcie_lanes = 0, pcie_most_lanes = 0;
};

/// Returns all GPUs of the machine, in the order of the library; CUDA_VISIBLE_DEVICES does not change it. None if there
/// is no library, which comes with NVIDIA's driver, or if it fails.
///
/// Does not wait: it returns what is known, and lets a thread ask the library again, for later calls. So the first call
/// returns none. A driver that never answers keeps that thread, which nobody joins. Thread-safe.
std::vector<GpuUsage> gpu_usage();

}  // namespace feedline::gpu
