// Decodes varints that lie side by side: several at a time, and without a branch for each width.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "flowgraph/parse/wire.h"

namespace feedline::flow::wire {

/// decode_varints() returns this instead of a count if it refuses the varints.
inline constexpr uint64_t unfit = ~uint64_t{0};

/// Decodes the varints in [p, end) and returns how many there are. Returns `unfit` if there are more than `capacity`,
/// or if protobuf would refuse them because one is longer than 10 bytes or the last one is incomplete. Then the values
/// in `out` are unspecified. Precondition: the 10 bytes before `p` may be read; a run in an Example has as many bytes
/// before it.
uint64_t decode_varints(const uint8_t* p, const uint8_t* end, int64_t* out, uint64_t capacity) noexcept;

/// Returns the low 7 bits of each of the 8 bytes, joined to 56 bits.
inline uint64_t squeeze(uint64_t x) noexcept {
  x = (x & 0x007f007f007f007f) | (x & 0x7f007f007f007f00) >> 1;
  x = (x & 0x00003fff00003fff) | (x & 0x3fff00003fff0000) >> 2;
  return (x & 0x000000000fffffff) | (x & 0x0fffffff00000000) >> 4;
}

/// Describes the varints of one width, so that they can be read without a branch.
struct VarintWidth {
  uint64_t continued;      // continuation bits of its first 8 bytes
  uint16_t continued_far;  // continuation bits of the bytes after the 8th
  uint8_t back;            // bytes from the beginning of an 8-byte load to the varint's end: 8, or its width if greater
  uint8_t shift, shift_far;
};
inline constexpr std::array<VarintWidth, 11> varint_widths = [] {
  std::array<VarintWidth, 11> widths{};
  constexpr uint64_t msb = 0x8080808080808080;
  for (int size = 1; size <= 10; size++) {
    const int low = size < 8 ? size : 8;
    widths[static_cast<size_t>(size)] = {size > 8 ? msb : msb >> 8 >> (64 - 8 * low),
                                         static_cast<uint16_t>(size == 10 ? 0x80 : 0),
                                         static_cast<uint8_t>(size < 8 ? 8 : size), static_cast<uint8_t>(64 - 8 * low),
                                         static_cast<uint8_t>(size < 8 ? 16 : 8 * (10 - size))};
  }
  return widths;
}();

/// Returns whether the `size` bytes before `end` are exactly one varint, and sets `value`. Precondition: the 10 bytes
/// before `end` may be read. The widths in real data are hard to predict (a negative number takes 10 bytes), so no
/// width has a branch of its own.
inline bool read_varint_before(const uint8_t* end, size_t size, uint64_t& value) noexcept {
  if (size - 1 > 9) return false;
  const VarintWidth& width = varint_widths[size];
  const uint64_t near = load<uint64_t>(end - width.back) >> width.shift;
  const uint32_t far = uint32_t{load<uint16_t>(end - 2)} >> width.shift_far;
  value = squeeze(near) | uint64_t{far & 0x7f} << 56 | uint64_t{far >> 8} << 63;
  return (((near & 0x8080808080808080) ^ width.continued) | ((far & 0x8080) ^ width.continued_far)) == 0;
}

}  // namespace feedline::flow::wire
