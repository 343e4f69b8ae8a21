// A kernel that keeps a GPU busy for a given time while other kernels run beside it, as a trainer's may.
#pragma once

#include <cuda_runtime_api.h>

namespace feedline::bench {

/// Gives the stream a kernel that runs for `seconds`: one block on each multiprocessor, without access to memory.
cudaError_t keep_busy(double seconds, cudaStream_t stream);

}  // namespace feedline::bench
