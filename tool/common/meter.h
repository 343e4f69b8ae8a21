// What a thread has done, told to a progress line a MiB at a time; the place where an interrupt ends it.
#pragma once

#include <cstdint>
#include <utility>

#include "tool/common/interrupt.h"
#include "tool/common/terminal.h"

namespace feedline::cli {

/// Of one thread.
class Meter {
 public:
  explicit Meter(Progress& progress) : progress_(progress) {}
  ~Meter() { progress_.add(bytes_); }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Throws Error stalled when somebody interrupts.
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

}  // namespace feedline::cli
