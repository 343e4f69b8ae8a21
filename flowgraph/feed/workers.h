// The threads that run the tasks of a graph.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace feedline::flow {

/// Threads that run a graph's tasks while it has some, and otherwise sleep. oneTBB's own workers look for more work for
/// a millisecond before they sleep; beside a slow trainer this would be most of the CPU time that a feed takes.
///
/// wake() is for work that one thread can do in time; it wakes only the first thread. wake_all() is for work that a
/// caller of next() waits for; it wakes all threads. Call them after the work was given to the graph, from any thread.
/// They take no lock unless a thread sleeps.
class Workers {
 public:
  /// `run` must run tasks until none is left. It is called on any of the threads, on several at the same time, and
  /// must not throw. Throws std::system_error if the first thread cannot be started; it is not an error if further
  /// threads cannot be started.
  Workers(int threads, std::function<void()> run);
  ~Workers() { end(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Runs the tasks that are left, and ends the threads. Nothing is run after it returns.
  void end() noexcept;

  void wake() noexcept { first_.ring(false); }
  void wake_all() noexcept {
    first_.ring(true);
    others_.ring(true);
  }

 private:
  /// An event count: threads sleep until the bell rings. If it rings several times before a thread wakes, the thread
  /// wakes only once.
  class Bell {
   public:
    /// Wakes the threads that sleep. If `in_haste` is true, one of the bell's threads will look for a further ring for
    /// a moment before it sleeps again.
    void ring(bool in_haste) noexcept;
    /// Ends the waiting: every wait() returns false from now on.
    void end() noexcept;
    /// Waits for a ring after ring number `heard`, and sets `heard` to the number of rings so far. Returns false if the
    /// bell has ended.
    bool wait(uint64_t& heard);

   private:
    std::atomic<uint64_t> rings_{0};
    std::atomic<bool> haste_{false};
    std::atomic<int> asleep_{0};
    Mutex mutex_;
    Condition changed_;
    bool ended_ FEEDLINE_GUARDED_BY(mutex_) = false;
  };

  void loop(Bell& bell);

  const std::function<void()> run_;
  Bell first_, others_;
  std::vector<std::thread> threads_;
};

}  // namespace feedline::flow
