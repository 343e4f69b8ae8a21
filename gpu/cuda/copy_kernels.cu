// The kernel that runs copy_thread() in all its threads.
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/each_thread.cuh"

namespace feedline::gpu {
namespace {

__global__ void __launch_bounds__(block_threads) copy(const __grid_constant__ CopyArgs args) {
  copy_thread(args, blockIdx.x, threadIdx.x, block_threads);
}

}  // namespace

cudaError_t launch_copy(const CopyArgs& of, cudaStream_t stream) {
  CopyArgs args = of;
  void* arguments[] = {&args};
  return cudaLaunchKernel(reinterpret_cast<const void*>(copy), args.blocks(), block_threads, arguments, 0, stream);
}

cudaError_t load_copy() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, copy);
}

}  // namespace feedline::gpu
