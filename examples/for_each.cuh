// A parallel loop on a GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

template <typename Body>
__global__ void for_each_thread(int64_t n, Body body) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) body(i);
}

/// Enqueues body(i), a device function, on the stream for i from 0 to n - 1.
template <typename Body>
void for_each(int64_t n, cudaStream_t stream, Body body) {
  constexpr int block = 256;
  for_each_thread<<<static_cast<unsigned>((n + block - 1) / block), block, 0, stream>>>(n, body);
  check(cudaGetLastError());
}
