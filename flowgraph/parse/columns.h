// Parsed records: one column for each feature, with values still packed as in the records.
//
// The parser copies the numbers of fixed features into the column, side by side. Bytes stay where they were read, and
// the column refers to them. The values of one row of a variable feature lie together somewhere in the arena. So one
// pointer leads to any row of any column, and rows can be picked in any order without moving their values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>  // without AddressSanitizer its macros do nothing
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes)
#endif

namespace feedline::flow {

struct BytesRef {
  const std::byte* data = nullptr;
  uint64_t size = 0;
};

/// The values of one row of a feature that is not fixed: float, int64_t, or BytesRef.
struct ValuesRef {
  const void* values = nullptr;
  uint64_t count = 0;
};

/// The values of one row of a feature whose rows have steps. Each step may have any number of values.
struct StepsRef {
  ValuesRef all;                   // the values of all steps, one after another
  const uint32_t* ends = nullptr;  // for each step, the number of values in this step and those before it
  uint64_t steps = 0;
};

struct Column {
  // Fixed features: rows * elements values of float, int64_t, double (of an expression) or BytesRef.
  // Features with FeatureSpec::nested(): one StepsRef for each row.
  // All other features: one ValuesRef for each row.
  void* data = nullptr;

  template <typename T>
  T* as() const noexcept {
    return static_cast<T*>(data);
  }
};

/// The records of a chunk that are parsed in one session.
struct ChunkRecords {
  uint32_t rows = 0;
  // An upper bound for the bytes of their payloads together. It may count payloads of records that are read, but not
  // parsed.
  uint64_t payload_bytes = 0;
  uint64_t kept_free = 0;  // bytes of the arena that the caller takes after the session
};

/// A bump allocator over memory that was allocated beforehand. MemoryPlan computes an upper bound of what is taken, so
/// running out of memory is a bug and throws std::length_error.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::span<std::byte> memory) noexcept : next_(memory.data()), end_(memory.data() + memory.size()) {}
  /// For tests: leaves at least `gap` bytes before each block that is taken, and lets AddressSanitizer report all use
  /// of memory that is not taken. `gap` must be greater than 0.
  Arena(std::span<std::byte> memory, size_t gap) noexcept : Arena(memory) {
    gap_ = gap;
    ASAN_POISON_MEMORY_REGION(memory.data(), memory.size());
  }

  template <typename T>
  T* take(size_t count) {
    next_ += gap_;
    next_ += -reinterpret_cast<uintptr_t>(next_) & (alignof(T) - 1);
    if (next_ > end_ || count > static_cast<size_t>(end_ - next_) / sizeof(T))
      throw std::length_error("the plan of a chunk's memory is too small");
    T* taken = reinterpret_cast<T*>(next_);
    next_ += count * sizeof(T);
    if (gap_ != 0) ASAN_UNPOISON_MEMORY_REGION(taken, count * sizeof(T));
    return taken;
  }
  /// Returns how many bytes are left. The alignment of the next block that is taken may cost some of them.
  uint64_t left() const noexcept { return static_cast<uint64_t>(end_ - next_); }
  /// Gives back the memory from `end` on. `end` must lie within what was taken last, or at its end.
  void trim(void* end) noexcept {
    if (gap_ != 0) ASAN_POISON_MEMORY_REGION(end, static_cast<size_t>(next_ - static_cast<std::byte*>(end)));
    next_ = static_cast<std::byte*>(end);
  }

 private:
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
  size_t gap_ = 0;
};

}  // namespace feedline::flow
