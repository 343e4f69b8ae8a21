// Replaces examples/for_each.cuh on fake GPUs whose memory the host can touch: the stream's thread runs the loop.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <stdexcept>

#include "support/fake_cuda.h"

#undef __device__
#define __device__

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

template <typename Body>
void for_each(int64_t n, cudaStream_t stream, Body body) {
  feedline::test::run_on_stream(stream, [n, body] {
    for (int64_t i = 0; i < n; i++) body(i);
  });
}
