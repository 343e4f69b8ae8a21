// Ranges of time for profilers (NVTX: Nsight Systems shows them beside what GPUs do), and for the traces that feedline
// itself writes.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/spans.h"
#include "feedline/export.h"

namespace feedline::gpu {

/// Begin and end a range of NVTX in the calling thread. Do nothing in a build without CUDA.
FEEDLINE_PUBLIC void push_range(const char* name) noexcept;
FEEDLINE_PUBLIC void pop_range() noexcept;

/// Marks a range of time in the calling thread, from construction to destruction, for NVTX and as a Span. It costs
/// nanoseconds if neither a profiler nor a SpanRecording is active. `name` is a string literal.
class TraceRange {
 public:
  explicit TraceRange(const char* name, int64_t number = -1) noexcept : name_(name), number_(number) {
    push_range(name);
    if (SpanRecording::goes_on()) begin_ = std::chrono::steady_clock::now();
  }
  ~TraceRange() {
    pop_range();
    if (begin_ != std::chrono::steady_clock::time_point())
      record_span(name_, begin_, std::chrono::steady_clock::now(), number_);
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  const char* const name_;
  const int64_t number_;
  std::chrono::steady_clock::time_point begin_;  // 0: no recording was active
};

}  // namespace feedline::gpu
