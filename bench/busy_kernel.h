// A kernel that keeps a GPU busy as a trainer's kernels do, while other kernels may run beside it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace feedline::bench {

/// Launches on the stream a kernel that does a fixed amount of work, so that it takes longer if others take a part of
/// the GPU from it. It has `blocks` blocks of 256 threads, most of which wait until others have ended, so that others'
/// blocks find a place meanwhile. Each thread reads and writes 16 bytes of `memory`, and multiplies and adds 512 times.
/// By arithmetic, that uses all of the multiprocessors, and on an H100 about half of the memory's bandwidth, on a
/// GeForce all of it. `bytes` of memory should be more than the GPU's caches hold; it is a multiple of 16.
cudaError_t keep_busy(unsigned blocks, void* memory, size_t bytes, cudaStream_t stream);

}  // namespace feedline::bench
