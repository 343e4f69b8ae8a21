// A kernel that computes for as long as one likes, beside which others run: what a trainer may be.
#pragma once

#include <cuda_runtime_api.h>

namespace feedline::bench {

/// Gives the stream a kernel of so many seconds: one block on each multiprocessor, which touches no memory.
cudaError_t keep_busy(double seconds, cudaStream_t stream);

}  // namespace feedline::bench
