// The kernels that run divide_thread() for all elements.
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/each_thread.cuh"

namespace feedline::gpu {
namespace {

template <typename T>
struct Divide {
  using Args = DivideArgs;
  static __device__ void run(const Args& args, uint64_t thread) { divide_thread<T>(args, thread); }
};

}  // namespace

cudaError_t launch_divide(const DivideLaunch& of, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  with_gradient_type(of.dtype, [&](auto type) {
    error = launch<Divide<typename decltype(type)::t>>(of.args, of.args.elements, stream);
  });
  return error;
}

cudaError_t load_divide() {
  cudaError_t error = cudaSuccess;
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16})
    with_gradient_type(dtype, [&](auto type) {
      if (error == cudaSuccess) error = load<Divide<typename decltype(type)::t>>();
    });
  return error;
}

}  // namespace feedline::gpu
