// Notes the streams that use a batch.
#pragma once

#include <algorithm>
#include <vector>

#include "gpu/cuda/cuda_handles.h"

namespace feedline::gpu {

/// The streams of a GPU that use a batch. Stream::host is left out, because the host has done its work before it
/// releases a batch.
///
/// A batch may be used on one thread and released on another, which has a different per-thread default stream. So for
/// both kinds of default stream, CUDA's legacy default stream is noted, which waits for the streams of all threads.
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
