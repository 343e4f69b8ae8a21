// Reads a value from bytes that need not be aligned.
#pragma once

#include <cstring>

namespace feedline {

/// Returns the sizeof(T) bytes at `at` as a T. `at` need not be aligned. The byte order is that of this machine, which
/// is little-endian, as are the formats that feedline reads. `Byte` is std::byte, uint8_t or char.
template <typename T, typename Byte>
[[gnu::always_inline]] inline T load(const Byte* at) noexcept {
  static_assert(sizeof(Byte) == 1);
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace feedline
