// How a thread of its own takes buffers: it waits for one to come back, where the graph is kicked.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/feed/delivery.h"

namespace feedline::flow {

/// Of one taking thread. The mutex and the condition are its owner's, for whom they guard and tell other things, too.
class BufferWait {
 public:
  BufferWait(std::mutex& mutex, std::condition_variable& changed) : mutex_(mutex), changed_(changed) {}

  /// Until the ring's pool is closed.
  void watch(BatchRing& ring) {
    ring.pool().on_return([this] {
      const std::lock_guard lock(mutex_);
      returned_ = true;
      changed_.notify_all();
    });
  }

  /// Null where none is free and stop(), called under the mutex, says so. Tells `delivery` that it waits for one.
  template <typename Stop>
  BatchBuffer* take(BatchRing& ring, Delivery& delivery, int replica, Stop stop) {
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        returned_ = false;
      }
      if (const auto buffer = ring.pool().take()) return *buffer;
      {
        const std::lock_guard lock(mutex_);
        if (stop()) return nullptr;
      }
      delivery.out_of_buffers(replica);
      const auto since = std::chrono::steady_clock::now();
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return returned_ || stop(); });
      }
      waited_ns_ += static_cast<uint64_t>((std::chrono::steady_clock::now() - since).count());
    }
  }

  double waited_s() const noexcept { return static_cast<double>(waited_ns_) / 1e9; }

 private:
  std::mutex& mutex_;
  std::condition_variable& changed_;
  bool returned_ = false;  // a buffer has come back
  std::atomic<uint64_t> waited_ns_{0};
};

}  // namespace feedline::flow
