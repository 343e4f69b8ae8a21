// The streams that use a batch.
#pragma once

#include <algorithm>
#include <vector>

#include "gpu/cuda/cuda_handles.h"

namespace feedline::gpu {

/// Streams of one GPU. Those of the host are left out, because the host does its work before it lets go of a batch.
///
/// Any thread may let go of a batch, and a thread's default stream is not that of the thread that used the batch. So
/// CUDA's legacy default stream, which waits for the streams of all threads, takes the place of a default stream.
class CudaUsers {
 public:
  void add(Stream stream) {
    if (stream.kind() == DeviceId::Kind::host) return;
    const cudaStream_t handle = is_default(stream) ? cudaStreamLegacy : stream.cuda_stream();
    if (std::ranges::find(streams_, handle) == streams_.end()) streams_.push_back(handle);
  }
  void clear() noexcept { streams_.clear(); }
  const std::vector<cudaStream_t>& streams() const noexcept { return streams_; }

 private:
  std::vector<cudaStream_t> streams_;
};

}  // namespace feedline::gpu
