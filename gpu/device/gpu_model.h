// Finds out which model the GPU with an ordinal is, and whether this build has kernels for it.
#pragma once

#include <string>

#include "feedline/device.h"

namespace feedline::gpu {

struct GpuModel {
  int major = 0, minor = 0;  // the compute capability
  std::string uuid;          // as nvidia-smi -L writes it: "GPU-" and 36 characters

  /// The ways in which a GPU can get the kernels of this build:
  /// - none: the GPU cannot run them.
  /// - compiled: they were compiled for the GPU.
  /// - by_driver: the driver compiles them when they are first used.
  enum class Kernels { none, compiled, by_driver };
  Kernels kernels() const noexcept;
};

/// Returns the model of a GPU. Makes no context on the GPU. Throws Error device_error if the driver does not report the
/// model.
GpuModel model_of(DeviceId gpu);

/// Returns the oldest compute capability that this build has kernels for: "7.5".
std::string oldest_capability();

/// Throws Error device_error if the GPU cannot run the kernels of this build. If the GPU's driver must compile the
/// kernels, which takes seconds, logs this once for each GPU and process.
void check_kernels(DeviceId gpu);

}  // namespace feedline::gpu
