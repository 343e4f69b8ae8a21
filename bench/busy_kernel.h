// A kernel that keeps a GPU busy for a given time, as a trainer's kernel does, while other kernels may run beside it.
#pragma once

#include <cuda_runtime_api.h>

namespace feedline::bench {

/// Launches on the stream a kernel that runs for `seconds`: one block on each multiprocessor, without access to memory.
cudaError_t keep_busy(double seconds, cudaStream_t stream);

}  // namespace feedline::bench
