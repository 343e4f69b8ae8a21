// Launches and loads the kernels. nvcc compiles these functions.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "gpu/reduce/copy_kernel.h"
#include "gpu/reduce/divide_kernel.h"
#include "gpu/reduce/reduce_kernel.h"
#include "unpack/unpack_kernel.h"

namespace feedline::gpu {

/// Launch kernels on `stream`, which is a stream of the current device. All pointers in the launches are to memory of
/// that device. Return the error of this launch, not one of an earlier call.

/// Successive launches that have the same kernel share a grid (unpack::count_for_grid()). Precondition: no launch is
/// empty.
cudaError_t launch_unpack(std::span<const unpack::UnpackLaunch> launches, cudaStream_t stream);
cudaError_t launch_reduce(const ReduceLaunch& launch, cudaStream_t stream);
cudaError_t launch_divide(const DivideLaunch& launch, cudaStream_t stream);
/// Precondition: there is something to copy.
cudaError_t launch_copy(const CopyArgs& copies, cudaStream_t stream);

/// Load all kernels of launch_reduce(), launch_divide() or launch_copy() into the current device's context.
cudaError_t load_reduce();
cudaError_t load_divide();
cudaError_t load_copy();

/// Loads the kernel into the current device's context.
cudaError_t load_unpack(const unpack::UnpackKernel& kernel);

}  // namespace feedline::gpu
