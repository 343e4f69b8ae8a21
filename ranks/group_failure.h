// Why a group of ranks has ended.
#pragma once

#include <atomic>
#include <optional>

#include "feedline/error.h"

namespace feedline::gpu {

/// Keeps the first Error that it is given. Any thread may look at any time, which takes no lock: the Error is written
/// once, before the flag that says so.
class GroupFailure {
 public:
  /// One thread at a time: under the owner's mutex.
  void set(const Error& why) {
    if (failed_.load(std::memory_order_relaxed)) return;
    error_ = why;
    failed_.store(true, std::memory_order_release);
  }

  explicit operator bool() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// Precondition: there is one.
  const Error& operator*() const noexcept { return *error_; }
  std::optional<Error> get() const { return *this ? error_ : std::nullopt; }

 private:
  std::optional<Error> error_;
  std::atomic<bool> failed_{false};
};

}  // namespace feedline::gpu
