// reduce_thread() for all elements at once.
#include "gpu/cuda_launch.h"

namespace feedline::gpu {
namespace {

constexpr unsigned block_threads = 256;

template <typename T, typename Combine>
__global__ void __launch_bounds__(block_threads) reduce(const __grid_constant__ ReduceArgs args) {
  const uint64_t thread = uint64_t{blockIdx.x} * block_threads + threadIdx.x;
  if (thread < args.elements) reduce_thread<T, Combine>(args, thread);
}

}  // namespace

cudaError_t launch_reduce(const ReduceLaunch& launch, cudaStream_t stream) {
  if (launch.args.elements == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((launch.args.elements + block_threads - 1) / block_threads);
  ReduceArgs args = launch.args;
  void* arguments[] = {&args};
  cudaError_t error = cudaSuccess;
  with_reduction(launch.dtype, launch.reduction, [&](auto type, auto combine) {
    error = cudaLaunchKernel(reduce<typename decltype(type)::t, decltype(combine)>, blocks, block_threads, arguments, 0,
                             stream);
  });
  return error;
}

cudaError_t load_reduce() {
  cudaError_t error = cudaSuccess;
  for (int dtype = static_cast<int>(DType::uint8); dtype < dtype_count; dtype++)
    for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max})
      with_reduction(static_cast<DType>(dtype), reduction, [&](auto type, auto combine) {
        cudaFuncAttributes attributes;
        const cudaError_t now =
            cudaFuncGetAttributes(&attributes, reduce<typename decltype(type)::t, decltype(combine)>);
        if (now != cudaSuccess) error = now;
      });
  return error;
}

}  // namespace feedline::gpu
