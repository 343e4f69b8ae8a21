// The bad records that a feed met, each once, however many epochs read it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "feedline/error.h"

namespace feedline::flow {

/// Thread-safe.
class ErrorLog {
 public:
  /// Errors that are kept whole.
  static constexpr size_t kept = 100;
  /// Bad records that are told from one another. Those behind them count at each reading.
  static constexpr size_t told_apart = 1 << 16;

  /// Takes note of an error whose place names file, record and offset, if it is new.
  void note(const Error& error);

  uint64_t total() const noexcept { return total_; }
  /// The first of them.
  std::vector<Error> first() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_set<uint64_t> seen_;  // hashes of their places
  std::vector<Error> first_;
  std::atomic<uint64_t> total_{0};
};

}  // namespace feedline::flow
