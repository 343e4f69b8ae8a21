// Counts the messages of a stage, and the time that it works on them. Counting costs nanoseconds for each message.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "feedline/stage_report.h"
#include "gpu/device/trace.h"

namespace feedline::flow {

struct StageCounters {
  explicit StageCounters(const char* range) noexcept : name(range) {}

  const char* const name;  // the name of the stage's range in a profile
  std::atomic<uint64_t> messages{0};
  std::atomic<uint64_t> busy_ns{0};
  std::atomic<int64_t> waiting{0};  // messages that were sent to the stage and are not done

  /// Returns the report of the stage. `wait_s` and `queue` are as in StageReport.
  StageReport report(std::string stage, double wait_s, int64_t queue) const {
    return {std::move(stage), static_cast<double>(busy_ns) / 1e9, wait_s, messages, queue};
  }

  /// While an object of this class lives, the stage is busy with one message. `number`: the number of the chunk or step
  /// in the message.
  class Busy {
   public:
    explicit Busy(StageCounters& counters, int64_t number = -1) noexcept
        : range_(counters.name, number), counters_(counters), start_(std::chrono::steady_clock::now()) {}
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
