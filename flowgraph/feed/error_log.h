// Collects the bad records that a feed met, each once, however many epochs read it.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "feedline/error.h"

namespace feedline::flow {

/// The bad records met so far. Thread-safe.
class ErrorLog {
 public:
  /// The maximum number of Errors that are stored, with their place and message. Further errors are only counted.
  static constexpr size_t kept = 100;
  /// The maximum number of different bad records that are remembered, so that each of them counts only once. Any
  /// further bad record counts each time that it is read.
  static constexpr size_t told_apart = 1 << 16;

  /// Notes an Error, unless one with the same place was noted before. The place must name file, record and offset.
  void note(const Error& error);

  uint64_t total() const noexcept { return total_; }
  /// Returns the first errors that were noted, at most `kept`.
  std::vector<Error> first() const;

 private:
  mutable Mutex mutex_;
  std::unordered_set<uint64_t> seen_ FEEDLINE_GUARDED_BY(mutex_);  // hashes of the places of errors
  std::vector<Error> first_ FEEDLINE_GUARDED_BY(mutex_);
  std::atomic<uint64_t> total_{0};
};

}  // namespace feedline::flow
