// Runs the GPU kernels for unpack_check: one thread after another on the host, or on a GPU.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "unpack/unpack_kernel.h"

namespace feedline::test {

struct DeviceRun {
  const unpack::DeviceUnpacker& unpack;
  std::span<const std::byte> in;  // rows; in_stride bytes from the beginning of one to that of the next
  size_t in_stride;
  std::span<std::byte> out;
  size_t out_stride, rows;
  std::span<const int64_t> numbers = {};  // which input row each output row is made from; empty: its own
};

extern const char* const device_name;
/// Returns why nothing can be run, or nothing if it can.
std::optional<std::string> no_device();

/// Unpacks `in` into `out`, both in host memory.
void run(const DeviceRun& run);

/// Measures on a GPU, with all data there; returns nothing if there is no GPU. The seconds are those of one run and of
/// a memset of its output, measured over as many outputs as a GPU's caches cannot hold.
struct DeviceSeconds {
  double unpack, memset;
};
std::optional<DeviceSeconds> time(const DeviceRun& batch);

}  // namespace feedline::test
