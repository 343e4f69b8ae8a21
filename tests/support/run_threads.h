// A GPU's threads, one after another on the host: the code of the kernels without the GPU.
#pragma once

#include "gpu/unpack/unpack_kernel.h"

namespace feedline::gpu {

/// Memory of the launch's arguments is the host's.
inline void run_threads(const UnpackLaunch& launch) {
  if (launch.threads == 0) return;
  with_kernel(launch.kernel, [&](auto op, auto vector) {
    using Op = typename decltype(op)::t;
    for (uint64_t thread = 0; thread < launch.threads; thread++) unpack_thread<Op, vector()>(launch.args, thread);
  });
}

}  // namespace feedline::gpu
