// Lets a thread outside of the graph take buffers. If no buffer is free, the thread blocks until one comes back. (The
// graph never blocks: a message tells it that a buffer has come back.)
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/mutex.h"
#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/feed/delivery.h"

namespace feedline::flow {

/// Takes free buffers from rings for one thread, and makes that thread wait while a ring has none. The mutex and the
/// condition variable belong to the object that owns this one, which guards its own state with them, too.
class BufferWait {
 public:
  BufferWait(Mutex& mutex, Condition& changed) : mutex_(mutex), changed_(changed) {}

  /// Makes take() notice buffers that come back to this ring, until the ring's pool is closed.
  void watch(BatchRing& ring) {
    ring.pool().on_return([this] {
      const Lock lock(mutex_);
      returned_ = true;
      changed_.notify_all();
    });
  }

  /// Returns a buffer of the ring, and waits until one is free. Returns null if no buffer is free and stop() returns
  /// true; stop() is called under the mutex. If it waits, tells `delivery` that `replica` has no free buffer.
  template <typename Stop>
  BatchBuffer* take(BatchRing& ring, Delivery& delivery, int replica, Stop stop) {
    for (;;) {
      {
        const Lock lock(mutex_);
        returned_ = false;
      }
      if (const auto buffer = ring.pool().take()) return *buffer;
      {
        const Lock lock(mutex_);
        if (stop()) return nullptr;
      }
      delivery.out_of_buffers(replica);
      const auto since = std::chrono::steady_clock::now();
      {
        Lock lock(mutex_);
        changed_.wait(lock, [&]() FEEDLINE_REQUIRES(mutex_) { return returned_ || stop(); });
      }
      waited_ns_ += static_cast<uint64_t>((std::chrono::steady_clock::now() - since).count());
    }
  }

  double waited_s() const noexcept { return static_cast<double>(waited_ns_) / 1e9; }

 private:
  Mutex& mutex_;
  Condition& changed_;
  bool returned_ FEEDLINE_GUARDED_BY(mutex_) = false;  // a buffer has come back since take() last looked
  std::atomic<uint64_t> waited_ns_{0};
};

}  // namespace feedline::flow
