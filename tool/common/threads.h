// Threads of a command, which are joined whatever happens.
#pragma once

#include <functional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "feedline/error.h"

namespace feedline::tool {

/// A group of threads. Not thread-safe. The destructor waits until all threads have ended. So before an exception
/// leaves the object's scope, the code must make the threads end.
class Threads {
 public:
  Threads() = default;
  ~Threads() { join(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  /// Starts a thread that runs `body`, which must not throw. Throws Error io_error if the system refuses the thread.
  void start(std::function<void()> body) {
    threads_.reserve(threads_.size() + 1);
    try {
      threads_.push_back(start_thread("feedline-tool", std::move(body)));
    } catch (const std::system_error& refused) {
      throw Error(Category::io_error, refused.what());
    }
  }
  /// Waits until all threads have ended.
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace feedline::tool
