// Ranges of time for profilers (NVTX: Nsight Systems shows them beside what GPUs do).
#pragma once

namespace feedline::gpu {

/// Marks a range of time in the calling thread: from construction to destruction. It costs nanoseconds if no profiler
/// listens, and in a build without CUDA.
class TraceRange {
 public:
  explicit TraceRange(const char* name) noexcept;
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace feedline::gpu
