// Memory and streams of the current GPU, for tests.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>

namespace feedline::test {

inline void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes) : size_(bytes) { require(cudaMalloc(&data_, std::max<size_t>(1, bytes))); }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() const { return data_; }
  std::byte* bytes() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return size_; }

 private:
  size_t size_;
  void* data_ = nullptr;
};

/// Pinned memory of the host: a copy from or to it runs in the order of its stream. Pageable memory is read when the copy
/// is called, whatever the stream still has to do.
class PinnedFloats {
 public:
  explicit PinnedFloats(size_t count) : count_(count) { require(cudaMallocHost(&data_, count * sizeof(float))); }
  ~PinnedFloats() { cudaFreeHost(data_); }
  PinnedFloats(const PinnedFloats&) = delete;
  PinnedFloats& operator=(const PinnedFloats&) = delete;
  std::span<float> span() const { return {static_cast<float*>(data_), count_}; }
  void* data() const { return data_; }

 private:
  size_t count_;
  void* data_ = nullptr;
};

class DeviceStream {
 public:
  DeviceStream() { require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~DeviceStream() { cudaStreamDestroy(stream_); }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace feedline::test
