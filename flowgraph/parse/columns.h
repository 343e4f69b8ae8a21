// Parsed records: one column for each feature, still packed as in the records.
//
// Numbers of fixed features are copied side by side. Bytes stay where they were read and are referred to. The values
// of a row of a variable feature lie together somewhere in the arena. So every row of every column is a pointer, and
// rows can be picked in any order without moving what they point at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "feedline/tensor.h"

namespace feedline::flow {

struct BytesRef {
  const std::byte* data = nullptr;
  uint64_t size = 0;
};

/// The values of one row: float, int64_t, or BytesRef.
struct ValuesRef {
  const void* values = nullptr;
  uint64_t count = 0;
};

struct Column {
  // fixed:  rows * elements of float, int64_t, double (of an expression) or BytesRef.
  // others: rows of ValuesRef.
  void* data = nullptr;

  template <typename T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }
};

/// Bump allocator over memory taken beforehand. Its bound is computed by the plan: running out is a bug, and throws
/// std::length_error.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::span<std::byte> memory) noexcept : next_(memory.data()), end_(memory.data() + memory.size()) {}

  template <typename T>
  T* take(size_t count) {
    next_ += -reinterpret_cast<uintptr_t>(next_) & (alignof(T) - 1);
    if (next_ > end_ || count > static_cast<size_t>(end_ - next_) / sizeof(T))
      throw std::length_error("the plan of a chunk's memory is too small");
    T* taken = reinterpret_cast<T*>(next_);
    next_ += count * sizeof(T);
    return taken;
  }
  /// Gives back what lies behind `end`, a place in what was taken last.
  void trim(void* end) noexcept { next_ = static_cast<std::byte*>(end); }

 private:
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
};

}  // namespace feedline::flow
