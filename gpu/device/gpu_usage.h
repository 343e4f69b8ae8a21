// Reports how busy the GPUs of this machine are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace feedline::gpu {

/// The usage of a GPU by all processes, as NVIDIA's management library (NVML) reports it.
struct GpuUsage {
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // "GPU-..."
  /// The share of the last sample period in which a kernel was running; such a period lasts a sixth of a second to a
  /// second. nullopt if the library does not report it, for instance for a GPU that is divided (MIG).
  std::optional<double> busy;
  uint64_t memory_used = 0, memory_bytes = 0;  // how much of the GPU's memory is used, and how much it has
  /// The PCIe link to the host: its generation at full speed (an idle GPU lowers the generation), how many lanes the
  /// GPU uses, and how many it could use at most. Data reaches a card slowly if its slot has few lanes. A number is 0
  /// if the library does not report it.
  unsigned pcie_generation = 0, pcie_lanes = 0, pcie_most_lanes = 0;
};

/// Returns the usage of all GPUs of the machine, in the order of the library; CUDA_VISIBLE_DEVICES does not change this
/// list. The list is empty if the library, which comes with NVIDIA's driver, is missing or fails.
///
/// Does not wait: returns the last answer of the library, and lets a thread ask the library again for later calls. So
/// the first call returns an empty list. If the driver never answers, that thread never ends, and nobody waits for its
/// end. Thread-safe.
std::vector<GpuUsage> gpu_usage();

}  // namespace feedline::gpu
