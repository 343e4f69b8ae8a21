// The threads that the tasks of a graph run on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace feedline::flow {

/// Threads that run what there is to run, and sleep in between. oneTBB's own workers look for more work for a
/// millisecond before they sleep, which beside a slow trainer would be most of what a feed takes.
///
/// wake() is for work that one thread can do in time: it wakes the first thread only. wake_all() is for work that
/// somebody waits for. Both are to be called after the work was given to the graph, from any thread; they take no lock
/// unless a thread sleeps.
class Workers {
 public:
  /// run: runs tasks until there are none, on any of the threads, on several side by side; it throws nothing. Throws
  /// std::system_error if the first thread cannot be started; fewer others are no error.
  Workers(int threads, std::function<void()> run);
  ~Workers() { end(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Runs what there still is, and ends the threads. Afterwards nothing is run any more.
  void end() noexcept;

  void wake() noexcept { first_.ring(false); }
  void wake_all() noexcept {
    first_.ring(true);
    others_.ring(true);
  }

 private:
  /// What threads sleep on. Whoever hears it anew hears of all rings since.
  class Bell {
   public:
    /// in_haste: one of those who hear it looks for the next ring for a moment before it sleeps again.
    void ring(bool in_haste) noexcept;
    /// Rings for ever.
    void end() noexcept;
    /// Waits for a ring that came after the `heard`-th, and counts on to it. False: it has ended.
    bool wait(uint64_t& heard);

   private:
    std::atomic<uint64_t> rings_{0};
    std::atomic<bool> haste_{false};
    std::atomic<int> asleep_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ended_ = false;
  };

  void loop(Bell& bell);

  const std::function<void()> run_;
  Bell first_, others_;
  std::vector<std::thread> threads_;
};

}  // namespace feedline::flow
