// The kernels that run unpack_thread() in all their threads.
#include <algorithm>

#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/each_thread.cuh"

namespace feedline::gpu {
namespace {

// The launches that one grid does. Block (x, y) of the grid does a part of launch y.
struct UnpackJobs {
  unpack::UnpackArgs args[unpack::launches_of_grid];
  uint32_t threads[unpack::launches_of_grid];
};
static_assert(sizeof(UnpackJobs) <= 4096, "CUDA passes a kernel at most 4 KiB everywhere");

// A multiprocessor must have room for at least this many blocks, which leaves a thread 64 registers. Memory has a long
// latency, so many threads must be waiting for it at the same time.
constexpr int least_blocks = 4;

template <typename Op>
__global__ void __launch_bounds__(block_threads, least_blocks) unpack(const __grid_constant__ UnpackJobs jobs) {
  const unpack::UnpackArgs& args = jobs.args[blockIdx.y];
  const uint32_t thread = blockIdx.x * block_threads + threadIdx.x;
  if constexpr (Op::looks_up) {
    extern __shared__ uint4 near_values[];
    for (uint32_t i = threadIdx.x; i < args.values_bytes / sizeof(uint4); i += block_threads)
      near_values[i] = reinterpret_cast<const uint4*>(args.values)[i];
    __syncthreads();
    if (thread < jobs.threads[blockIdx.y])
      unpack::unpack_thread<Op>(args, reinterpret_cast<const std::byte*>(near_values), thread);
  } else {
    if (thread < jobs.threads[blockIdx.y]) unpack::unpack_thread<Op>(args, args.values, thread);
  }
}

// Sets `threads` to the number of threads of a kernel that the current GPU runs at the same time.
cudaError_t threads_at_once(const void* kernel, size_t shared_bytes, uint64_t& threads) {
  int device = 0, multiprocessors = 0, blocks = 0;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  if (const cudaError_t error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device))
    return error;
  if (const cudaError_t error =
          cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, block_threads, shared_bytes))
    return error;
  threads = uint64_t{block_threads} * static_cast<uint64_t>(blocks) * static_cast<uint64_t>(multiprocessors);
  return cudaSuccess;
}

template <typename Op>
cudaError_t launch_grid(std::span<const unpack::UnpackLaunch> launches, cudaStream_t stream) {
  size_t shared_bytes = 0;
  if (Op::looks_up)
    for (const unpack::UnpackLaunch& launch : launches)
      shared_bytes = std::max<size_t>(shared_bytes, launch.args.values_bytes);
  uint64_t at_once = 0;
  if (const cudaError_t error = threads_at_once(reinterpret_cast<const void*>(unpack<Op>), shared_bytes, at_once))
    return error;
  UnpackJobs jobs;
  uint32_t most = 0;
  for (size_t i = 0; i < launches.size(); i++) {
    jobs.args[i] = launches[i].args;
    jobs.threads[i] = spread(jobs.args[i], at_once);
    most = std::max(most, jobs.threads[i]);
  }
  void* arguments[] = {&jobs};
  const dim3 blocks((most + block_threads - 1) / block_threads, static_cast<unsigned>(launches.size()));
  return cudaLaunchKernel(unpack<Op>, blocks, block_threads, arguments, shared_bytes, stream);
}

}  // namespace

cudaError_t launch_unpack(std::span<const unpack::UnpackLaunch> launches, cudaStream_t stream) {
  while (!launches.empty()) {
    const auto of_grid = launches.first(unpack::count_for_grid(launches));
    launches = launches.subspan(of_grid.size());
    cudaError_t error = cudaSuccess;
    unpack::with_kernel(of_grid[0].kernel,
                        [&](auto op) { error = launch_grid<typename decltype(op)::t>(of_grid, stream); });
    if (error) return error;
  }
  return cudaSuccess;
}

cudaError_t load_unpack(const unpack::UnpackKernel& kernel) {
  cudaError_t error = cudaSuccess;
  unpack::with_kernel(kernel, [&](auto op) {
    cudaFuncAttributes attributes;
    error = cudaFuncGetAttributes(&attributes, unpack<typename decltype(op)::t>);
  });
  return error;
}

}  // namespace feedline::gpu
