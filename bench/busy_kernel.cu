#include "busy_kernel.h"

namespace feedline::bench {
namespace {

constexpr int block_threads = 256;

__device__ unsigned long long nanoseconds_now() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void __launch_bounds__(block_threads) busy(unsigned long long nanoseconds) {
  const unsigned long long begin = nanoseconds_now();
  while (nanoseconds_now() - begin < nanoseconds) {
  }
}

}  // namespace

cudaError_t keep_busy(double seconds, cudaStream_t stream) {
  int device = 0, multiprocessors = 0;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device))
    return error;
  busy<<<static_cast<unsigned>(multiprocessors), block_threads, 0, stream>>>(
      static_cast<unsigned long long>(seconds * 1e9));
  return cudaGetLastError();
}

}  // namespace feedline::bench
