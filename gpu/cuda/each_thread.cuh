// Runs kernels in which thread number i does part number i of the work.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace feedline::gpu {

inline constexpr unsigned block_threads = 256;

/// Calls Work::run() in `threads` threads, numbered from 0.
/// Work has the form struct { using Args = ...; static __device__ void run(const Args&, uint64_t thread); }.
template <typename Work>
__global__ void __launch_bounds__(block_threads)
    each_thread(const __grid_constant__ typename Work::Args args, uint64_t threads) {
  const uint64_t thread = uint64_t{blockIdx.x} * block_threads + threadIdx.x;
  if (thread < threads) Work::run(args, thread);
}

/// Launches each_thread<Work>. Returns the error of this launch, not one of an earlier call of the thread.
template <typename Work>
cudaError_t launch(typename Work::Args args, uint64_t threads, cudaStream_t stream) {
  if (threads == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((threads + block_threads - 1) / block_threads);
  void* arguments[] = {&args, &threads};
  return cudaLaunchKernel(each_thread<Work>, blocks, block_threads, arguments, 0, stream);
}

/// Loads each_thread<Work> into the current device's context.
template <typename Work>
cudaError_t load() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, each_thread<Work>);
}

}  // namespace feedline::gpu
