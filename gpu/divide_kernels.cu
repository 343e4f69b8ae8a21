// divide_thread() for all elements at once.
#include "gpu/cuda_launch.h"

namespace feedline::gpu {
namespace {

constexpr unsigned block_threads = 256;

template <typename T>
__global__ void __launch_bounds__(block_threads) divide(const __grid_constant__ DivideArgs args) {
  const uint64_t thread = uint64_t{blockIdx.x} * block_threads + threadIdx.x;
  if (thread < args.elements) divide_thread<T>(args, thread);
}

}  // namespace

cudaError_t launch_divide(const DivideLaunch& launch, cudaStream_t stream) {
  if (launch.args.elements == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((launch.args.elements + block_threads - 1) / block_threads);
  DivideArgs args = launch.args;
  void* arguments[] = {&args};
  cudaError_t error = cudaSuccess;
  with_gradient_type(launch.dtype, [&](auto type) {
    error = cudaLaunchKernel(divide<typename decltype(type)::t>, blocks, block_threads, arguments, 0, stream);
  });
  return error;
}

cudaError_t load_divide() {
  cudaError_t error = cudaSuccess;
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16})
    with_gradient_type(dtype, [&](auto type) {
      cudaFuncAttributes attributes;
      const cudaError_t now = cudaFuncGetAttributes(&attributes, divide<typename decltype(type)::t>);
      if (now != cudaSuccess) error = now;
    });
  return error;
}

}  // namespace feedline::gpu
