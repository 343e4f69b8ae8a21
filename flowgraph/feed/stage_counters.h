// What a stage does with its time: counters that cost nanoseconds a message.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "gpu/device/trace.h"

namespace feedline::flow {

struct StageCounters {
  explicit StageCounters(const char* range) noexcept : name(range) {}

  const char* const name;  // of its range in a profile
  std::atomic<uint64_t> messages{0};
  std::atomic<uint64_t> busy_ns{0};
  std::atomic<int64_t> waiting{0};  // messages sent to the stage and not yet done with

  /// While it lives, the stage is busy with one message.
  class Busy {
   public:
    explicit Busy(StageCounters& counters) noexcept
        : range_(counters.name), counters_(counters), start_(std::chrono::steady_clock::now()) {}
    ~Busy() {
      const auto time = std::chrono::steady_clock::now() - start_;
      counters_.busy_ns.fetch_add(static_cast<uint64_t>(time.count()), std::memory_order_relaxed);
      counters_.messages.fetch_add(1, std::memory_order_relaxed);
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    const gpu::TraceRange range_;
    StageCounters& counters_;
    std::chrono::steady_clock::time_point start_;
  };
};

}  // namespace feedline::flow
