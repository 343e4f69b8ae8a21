// Runs a GPU's threads one after another on the host: the kernels' own code, without a GPU.
#pragma once

#include "gpu/unpack/unpack_kernel.h"

namespace feedline::gpu {

/// Runs the launch. All pointers in its arguments must point to host memory.
inline void run_threads(const UnpackLaunch& launch) {
  if (launch.threads == 0) return;
  with_kernel(launch.kernel, [&](auto op, auto vector) {
    using Op = typename decltype(op)::t;
    for (uint64_t thread = 0; thread < launch.threads; thread++) unpack_thread<Op, vector()>(launch.args, thread);
  });
}

}  // namespace feedline::gpu
