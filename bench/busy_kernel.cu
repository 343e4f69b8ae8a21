#include "busy_kernel.h"

namespace feedline::bench {
namespace {

constexpr int block_threads = 256;

__global__ void __launch_bounds__(block_threads) busy(int rounds, float4* memory, size_t count) {
  const size_t threads = size_t{gridDim.x} * block_threads;
  size_t at = size_t{blockIdx.x} * block_threads + threadIdx.x;
  for (int round = 0; round < rounds; round++, at += threads) {
    float4 x = memory[at % count];
    for (int i = 0; i < 128; i++) {
      x.x = fmaf(x.x, 0.999f, 0.001f);
      x.y = fmaf(x.y, 0.999f, 0.001f);
      x.z = fmaf(x.z, 0.999f, 0.001f);
      x.w = fmaf(x.w, 0.999f, 0.001f);
    }
    memory[at % count] = x;
  }
}

}  // namespace

cudaError_t keep_busy(int rounds, void* memory, size_t bytes, cudaStream_t stream) {
  int device = 0, multiprocessors = 0, blocks = 0;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device))
    return error;
  if (const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, busy, block_threads, 0))
    return error;
  busy<<<static_cast<unsigned>(multiprocessors * blocks), block_threads, 0, stream>>>(
      rounds, static_cast<float4*>(memory), bytes / sizeof(float4));
  return cudaGetLastError();
}

}  // namespace feedline::bench
