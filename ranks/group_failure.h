// The Error that has ended a group of ranks.
#pragma once

#include <atomic>
#include <optional>

#include "feedline/error.h"

namespace feedline::ranks {

/// Keeps the first Error that it is given. Any thread may read the Error at any time without a lock, because it is
/// written only once, before `failed_` is set.
class GroupFailure {
 public:
  /// Keeps `why` if it is the first Error. The caller must hold the mutex of this object's owner.
  void set(const Error& why) {
    if (failed_.load(std::memory_order_relaxed)) return;
    error_ = why;
    failed_.store(true, std::memory_order_release);
  }

  explicit operator bool() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// Returns the Error. Precondition: set() has been called.
  const Error& operator*() const noexcept { return *error_; }
  std::optional<Error> get() const { return *this ? error_ : std::nullopt; }

 private:
  std::optional<Error> error_;
  std::atomic<bool> failed_{false};
};

}  // namespace feedline::ranks
