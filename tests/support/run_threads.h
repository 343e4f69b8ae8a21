// Runs a GPU's threads one after another on the host: the kernels' own code, without a GPU.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "gpu/unpack/unpack_kernel.h"

namespace feedline::gpu {

/// Runs the launch. All pointers in its arguments must point to host memory.
inline void run_threads(const UnpackLaunch& launch) {
  if (launch.threads == 0) return;
  with_kernel(launch.kernel, [&](auto op, auto vector) {
    using Op = typename decltype(op)::t;
    constexpr size_t bytes = vector() * sizeof(typename Op::Out);
    if (launch.kernel.vectors && (reinterpret_cast<uintptr_t>(launch.args.out) | launch.args.out_stride) % bytes != 0) {
      std::fputs("A kernel writes vectors to memory that is not aligned for them.\n", stderr);
      std::abort();
    }
    for (uint64_t thread = 0; thread < launch.threads; thread++) unpack_thread<Op, vector()>(launch.args, thread);
  });
}

}  // namespace feedline::gpu
