// Records spans of time for a trace: what each thread did, from when to when.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "feedline/export.h"

namespace feedline {

struct Span {
  const char* name = nullptr;        // a string literal
  int64_t begin_ns = 0, end_ns = 0;  // of std::chrono::steady_clock
  int64_t number = -1;               // the number of the chunk or step that the thread worked on; -1 if there is none
};

/// The spans of one thread, in the order of their ends.
struct ThreadSpans {
  std::string thread;  // the thread's name
  int64_t id = 0;      // the thread's ID in the system (gettid(2))
  std::vector<Span> spans;
  uint64_t lost = 0;  // spans for which there was no room
};

/// Records the spans of all threads of the process, from construction to take(). Each thread has a buffer for `room`
/// spans of a recording, which has 2 MiB. There is one recording at a time.
class SpanRecording {
 public:
  static constexpr size_t room = 1 << 16;

  /// Throws Error bad_pipeline if a SpanRecording exists already.
  SpanRecording();
  ~SpanRecording();
  SpanRecording(const SpanRecording&) = delete;
  SpanRecording& operator=(const SpanRecording&) = delete;

  /// Ends the recording, and returns the spans of every thread that has recorded any, even if the thread has ended
  /// since.
  std::vector<ThreadSpans> take();

  /// Returns whether a recording is under way.
  static bool goes_on() noexcept { return goes_on_.load(std::memory_order_relaxed); }

 private:
  FEEDLINE_PUBLIC inline static std::atomic<bool> goes_on_{false};
};

/// Records a span of the calling thread, if a recording is under way. A thread's first span takes a lock and allocates
/// the thread's buffer; later spans do neither. The span is lost if there is no memory for the buffer, or no room in
/// it.
FEEDLINE_PUBLIC void record_span(const char* name, std::chrono::steady_clock::time_point begin,
                                 std::chrono::steady_clock::time_point end, int64_t number = -1) noexcept;

}  // namespace feedline
