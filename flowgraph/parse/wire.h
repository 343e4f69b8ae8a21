// Reads the protobuf wire format as protobuf's C++ parser does (google/protobuf/parse_context.h of 3.21):
// protobuf.dev/programming-guides/encoding.
//
// The functions take [p, end), the rest of the innermost message. They return the position after what they have read,
// or nullptr if protobuf would refuse the bytes. None of them reads beyond `end`. They work only on little-endian
// machines, like all code that maps stored numbers.
#pragma once

#include <bit>
#include <cstdint>

#include "base/load.h"

namespace feedline::flow::wire {

static_assert(std::endian::native == std::endian::little);

enum Type : uint32_t { varint = 0, fixed64 = 1, delimited = 2, group = 3, end_group = 4, fixed32 = 5 };

constexpr uint32_t tag(uint32_t number, Type type) { return number << 3 | type; }

/// The maximum number of levels to which messages and groups may be nested: protobuf's default recursion limit.
inline constexpr int max_depth = 100;

/// Reads the varint at `p` into `value`; bits beyond the 64th are dropped. Returns the position after it, or nullptr if
/// it does not end before `end` or has more than 10 bytes.
inline const uint8_t* read_varint(const uint8_t* p, const uint8_t* end, uint64_t& value) noexcept {
  uint64_t result = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (p == end) return nullptr;
    const uint64_t byte = *p++;
    result |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      value = result;
      return p;
    }
  }
  return nullptr;
}

const uint8_t* read_long_tag(const uint8_t* p, const uint8_t* end, uint32_t& tag) noexcept;
const uint8_t* read_long_size(const uint8_t* p, const uint8_t* end, uint32_t& size) noexcept;

/// Reads a tag of at most 5 bytes; bits beyond the 32nd are dropped. Precondition: p < end.
inline const uint8_t* read_tag(const uint8_t* p, const uint8_t* end, uint32_t& tag) noexcept {
  if (*p < 0x80) {
    tag = *p;
    return p + 1;
  }
  return read_long_tag(p, end, tag);
}

/// Reads the length of a delimited field: at most 5 bytes. Refuses it unless the whole field lies before `end`.
inline const uint8_t* read_size(const uint8_t* p, const uint8_t* end, uint32_t& size) noexcept {
  if (p != end && *p < 0x80) [[likely]] {
    size = *p++;
    return size <= static_cast<uint64_t>(end - p) ? p : nullptr;
  }
  // Reads a length that has two bytes.
  // Bound may be equal, never: no test can notice, because read_long_size() reads two bytes, too.
  if (end - p >= 2 && p[1] < 0x80) {
    size = (p[0] & 0x7fu) | uint32_t{p[1]} << 7;
    p += 2;
    return size <= static_cast<uint64_t>(end - p) ? p : nullptr;
  }
  return read_long_size(p, end, size);
}

/// Skips an unknown field whose tag was just read, including the groups in it, and returns the position after it.
/// `depth` is how many levels of groups may still be opened in it.
const uint8_t* skip_field(uint32_t tag, const uint8_t* p, const uint8_t* end, int depth) noexcept;

}  // namespace feedline::flow::wire
