// The streams that use a batch.
#pragma once

#include <algorithm>
#include <vector>

#include "gpu/cuda/cuda_handles.h"

namespace feedline::gpu {

/// The streams of a GPU that use a batch. Stream::host is left out, because the host does its work before it lets go of
/// a batch.
///
/// The thread that lets go of a batch may be a different one than the thread that used it, and has a per-thread default
/// stream of its own. So in place of either default stream, CUDA's legacy default stream is noted, which waits for the
/// streams of all threads.
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
