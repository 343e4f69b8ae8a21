// The kernels: unpack_thread() for all threads at once.
#include "gpu/cuda_launch.h"

namespace feedline::gpu {
namespace {

constexpr unsigned block_threads = 256;

template <typename Op, int vector>
__global__ void __launch_bounds__(block_threads) unpack(const __grid_constant__ UnpackArgs args) {
  const uint64_t thread = uint64_t{blockIdx.x} * block_threads + threadIdx.x;
  if (thread < args.vectors * args.row_groups) unpack_thread<Op, vector>(args, thread);
}

}  // namespace

cudaError_t launch_unpack(const UnpackLaunch& launch, cudaStream_t stream) {
  if (launch.threads == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((launch.threads + block_threads - 1) / block_threads);
  with_kernel(launch.kernel, [&](auto op, auto vector) {
    unpack<typename decltype(op)::t, vector()><<<blocks, block_threads, 0, stream>>>(launch.args);
  });
  return cudaGetLastError();
}

cudaError_t load_unpack(const UnpackKernel& kernel) {
  cudaError_t error = cudaSuccess;
  for (const bool vectors : {false, true})
    with_kernel({kernel.op, kernel.out, vectors}, [&](auto op, auto vector) {
      cudaFuncAttributes attributes;
      const cudaError_t now = cudaFuncGetAttributes(&attributes, unpack<typename decltype(op)::t, vector()>);
      if (now != cudaSuccess) error = now;
    });
  return error;
}

}  // namespace feedline::gpu
