// Reports a thread's progress to a Progress, one MiB at a time. An interrupt ends the thread's work at the next report.
#pragma once

#include <cstdint>
#include <utility>

#include "tool/common/interrupt.h"
#include "tool/common/terminal.h"

namespace feedline::tool {

/// Counts the bytes that one thread has done. The destructor reports the bytes that were not reported before.
class Meter {
 public:
  explicit Meter(Progress& progress) : progress_(progress) {}
  ~Meter() { progress_.add(bytes_); }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Counts `bytes` as done. Throws Error stalled after an interrupt.
  void add(uint64_t bytes) {
    bytes_ += bytes;
    if (bytes_ < 1 << 20) return;
    progress_.add(std::exchange(bytes_, 0));
    Interrupt::check();
  }

 private:
  Progress& progress_;
  uint64_t bytes_ = 0;
};

}  // namespace feedline::tool
