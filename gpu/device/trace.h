// Ranges of time for profilers (NVTX: Nsight Systems shows them beside what GPUs do).
#pragma once

namespace feedline::gpu {

/// While it lives, the thread is in a range of this name. Where no profiler listens, and in a build without CUDA, it
/// costs nanoseconds.
class TraceRange {
 public:
  explicit TraceRange(const char* name) noexcept;
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace feedline::gpu
