// Spans of time that threads record for a trace: what each thread did, from when to when.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace feedline {

struct Span {
  const char* name = nullptr;        // a string literal
  int64_t begin_ns = 0, end_ns = 0;  // of std::chrono::steady_clock
  int64_t number = -1;               // the number of the chunk or step that the thread worked on; -1 if there is none
};

/// The spans of one thread, in the order of their ends.
struct ThreadSpans {
  std::string thread;  // its name
  int64_t id = 0;      // its number in the system
  std::vector<Span> spans;
  uint64_t lost = 0;  // spans for which there was no room
};

/// Records the spans of all threads of the process, from construction to take(). Each thread has room for `room` spans
/// of a recording, which take 2 MiB. There is one recording at a time.
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

  /// Returns whether a recording goes on.
  static bool goes_on() noexcept { return goes_on_.load(std::memory_order_relaxed); }

 private:
  inline static std::atomic<bool> goes_on_{false};
};

/// Records a span of the calling thread, if a recording goes on. Takes no lock; the first span of a thread in a
/// recording allocates the memory. Loses the span if there is no memory.
void record_span(const char* name, std::chrono::steady_clock::time_point begin,
                 std::chrono::steady_clock::time_point end, int64_t number = -1) noexcept;

}  // namespace feedline
