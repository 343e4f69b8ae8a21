// The kernels that run unpack_thread() in all their threads.
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/each_thread.cuh"

namespace feedline::gpu {
namespace {

template <typename Op, int vector>
struct Unpack {
  using Args = UnpackArgs;
  static __device__ void run(const Args& args, uint64_t thread) { unpack_thread<Op, vector>(args, thread); }
};

}  // namespace

cudaError_t launch_unpack(const UnpackLaunch& of, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  with_kernel(of.kernel, [&](auto op, auto vector) {
    error = launch<Unpack<typename decltype(op)::t, vector()>>(of.args, of.threads, stream);
  });
  return error;
}

cudaError_t load_unpack(const UnpackKernel& kernel) {
  cudaError_t error = cudaSuccess;
  for (const bool vectors : {false, true})
    with_kernel({kernel.op, kernel.out, vectors}, [&](auto op, auto vector) {
      if (error == cudaSuccess) error = load<Unpack<typename decltype(op)::t, vector()>>();
    });
  return error;
}

}  // namespace feedline::gpu
