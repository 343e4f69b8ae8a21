#include "busy_kernel.h"

namespace feedline::bench {
namespace {

constexpr int block_threads = 256;

__global__ void __launch_bounds__(block_threads) busy(float4* memory, size_t count) {
  const size_t at = (size_t{blockIdx.x} * block_threads + threadIdx.x) % count;
  float4 x = memory[at];
  for (int i = 0; i < 128; i++) {
    x.x = fmaf(x.x, 0.999f, 0.001f);
    x.y = fmaf(x.y, 0.999f, 0.001f);
    x.z = fmaf(x.z, 0.999f, 0.001f);
    x.w = fmaf(x.w, 0.999f, 0.001f);
  }
  memory[at] = x;
}

}  // namespace

cudaError_t keep_busy(unsigned blocks, void* memory, size_t bytes, cudaStream_t stream) {
  busy<<<blocks, block_threads, 0, stream>>>(static_cast<float4*>(memory), bytes / sizeof(float4));
  return cudaGetLastError();
}

}  // namespace feedline::bench
