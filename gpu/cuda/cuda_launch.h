// What nvcc compiles.
#pragma once

#include <cuda_runtime_api.h>

#include "gpu/reduce/divide_kernel.h"
#include "gpu/reduce/reduce_kernel.h"
#include "gpu/unpack/unpack_kernel.h"

namespace feedline::gpu {

/// Each gives the stream, of the current device, the launch. Pointers are of that device. The error is the launch's
/// own.
cudaError_t launch_unpack(const UnpackLaunch& launch, cudaStream_t stream);

cudaError_t launch_reduce(const ReduceLaunch& launch, cudaStream_t stream);
cudaError_t launch_divide(const DivideLaunch& launch, cudaStream_t stream);

/// Loads the kernels of launch_reduce(), and of launch_divide(), into the current device's context.
cudaError_t load_reduce();
cudaError_t load_divide();

/// Loads the kernel, in both of its kinds, into the current device's context.
cudaError_t load_unpack(const UnpackKernel& kernel);

}  // namespace feedline::gpu
