// Runs a GPU's threads one after another on the host: the kernels' own code, without a GPU. Compiled without NDEBUG, it
// ends the program where a GPU would find an address that is not aligned.
#pragma once

#include <cstdint>

#include "gpu/reduce/copy_kernel.h"
#include "unpack/unpack_kernel.h"

namespace feedline::gpu {

/// Runs the launch with about `at_once` threads. All pointers in its arguments must point to host memory.
inline void run_threads(const unpack::UnpackLaunch& launch, uint64_t at_once) {
  if (launch.empty()) return;
  unpack::UnpackArgs args = launch.args;
  const uint32_t threads = unpack::spread(args, at_once);
  unpack::with_kernel(launch.kernel, [&](auto op) {
    using Op = typename decltype(op)::t;
    for (uint32_t thread = 0; thread < threads; thread++) unpack::unpack_thread<Op>(args, args.values, thread);
  });
}

/// Makes the copies. All pointers in the arguments must point to host memory.
inline void run_threads(const CopyArgs& args) {
  constexpr uint32_t threads = 256;
  for (uint32_t block = 0; block < args.blocks(); block++)
    for (uint32_t thread = 0; thread < threads; thread++) copy_thread(args, block, thread, threads);
}

}  // namespace feedline::gpu
