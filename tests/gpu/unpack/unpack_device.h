// Where unpack_check runs the kernels of GPUs: their threads on the host, or a GPU.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "gpu/unpack/unpack_kernel.h"

namespace feedline::test {

struct DeviceRun {
  const gpu::DeviceUnpacker& unpack;
  std::span<const std::byte> in;  // rows, in_stride bytes from each to the next
  size_t in_stride;
  std::span<std::byte> out;
  size_t out_stride, rows;
};

extern const char* const device_name;
/// Why there is nothing to run on; none: there is.
std::optional<std::string> no_device();

/// Out of `in` into `out`; both are the host's.
void run(const DeviceRun& run);

/// On a GPU alone, with everything there. Seconds for one run, of so many side by side that caches do not hold them,
/// and for a memset of its output.
struct DeviceSeconds {
  double unpack, memset;
};
std::optional<DeviceSeconds> time(const DeviceRun& batch);

}  // namespace feedline::test
