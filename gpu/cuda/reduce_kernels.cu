// The kernels that run reduce_thread() for all elements.
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/each_thread.cuh"

namespace feedline::gpu {
namespace {

template <typename T, typename Combine>
struct Reduce {
  using Args = ReduceArgs;
  static __device__ void run(const Args& args, uint64_t thread) { reduce_thread<T, Combine>(args, thread); }
};

}  // namespace

cudaError_t launch_reduce(const ReduceLaunch& of, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  with_reduction(of.dtype, of.reduction, [&](auto type, auto combine) {
    error = launch<Reduce<typename decltype(type)::t, decltype(combine)>>(of.args, of.args.elements, stream);
  });
  return error;
}

cudaError_t load_reduce() {
  cudaError_t error = cudaSuccess;
  for (int dtype = static_cast<int>(DType::uint8); dtype < dtype_count; dtype++)
    for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max})
      with_reduction(static_cast<DType>(dtype), reduction, [&](auto type, auto combine) {
        if (error == cudaSuccess) error = load<Reduce<typename decltype(type)::t, decltype(combine)>>();
      });
  return error;
}

}  // namespace feedline::gpu
