// Varints that lie side by side, several at a time and without a branch for each width.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flowgraph/wire.h"

namespace feedline::flow::wire {

/// How many varints end in [p, end).
uint64_t count_varints(const uint8_t* p, const uint8_t* end) noexcept;

/// Decodes them all into `out` (count_varints of them). False where protobuf would refuse: one longer than 10 bytes, or
/// the last one not ended. Precondition: 10 bytes before `p` may be read; a run of an Example has as many in front of
/// it.
bool decode_varints(const uint8_t* p, const uint8_t* end, int64_t* out) noexcept;

/// 8 groups of 7 bits, pushed together.
inline uint64_t squeeze(uint64_t x) noexcept {
  x = (x & 0x007f007f007f007f) | (x & 0x7f007f007f007f00) >> 1;
  x = (x & 0x00003fff00003fff) | (x & 0x3fff00003fff0000) >> 2;
  return (x & 0x000000000fffffff) | (x & 0x0fffffff00000000) >> 4;
}

/// The varint of `size` bytes (1 to 10) that ends before `end`, whose continuation bits are as they should be.
/// Precondition: 10 bytes before `end` may be read. No branch: widths of real data are hard to foresee (a negative
/// number takes 10 bytes).
inline uint64_t varint_before(const uint8_t* end, size_t size) noexcept {
  const size_t low = size < 8 ? size : 8;  // bytes of it in the first word
  const size_t back = size < 8 ? 8 : size;
  const uint64_t value = squeeze(load<uint64_t>(end - back) >> (64 - 8 * low));
  const uint64_t tail = load<uint16_t>(end - 2) >> 8 * (10 - back);  // its bytes 8 and 9, as far as it has them
  return value | (tail & 0x7f) << 56 | tail >> 8 << 63;
}

/// Whether the `size` bytes before `end` are one varint.
/// Precondition: as varint_before.
inline bool is_varint_before(const uint8_t* end, size_t size) noexcept {
  if (size - 1 > 9) return false;
  constexpr uint64_t msb = 0x8080808080808080;
  const size_t low = size < 8 ? size : 8;
  const uint64_t last = load<uint64_t>(end - 8) >> (64 - 8 * low);
  const bool front = (load<uint16_t>(end - 10) & 0x8080) == 0x8080;
  const bool ninth = (end[-9] & 0x80) != 0;
  return (last & msb) == msb >> 8 >> (64 - 8 * low) && (size <= 8 || (size == 9 ? ninth : front));
}

}  // namespace feedline::flow::wire
