#include "flowgraph/parse/wire.h"

#include <array>

namespace feedline::flow::wire {

const uint8_t* read_long_tag(const uint8_t* p, const uint8_t* end, uint32_t& tag) noexcept {
  uint32_t result = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    if (p == end) return nullptr;
    const uint32_t byte = *p++;
    result |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      tag = result;
      return p;
    }
  }
  return nullptr;
}

const uint8_t* read_long_size(const uint8_t* p, const uint8_t* end, uint32_t& size) noexcept {
  uint64_t result = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    if (p == end) return nullptr;
    const uint64_t byte = *p++;
    result |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      // protobuf refuses lengths that are too near to 2^31 for its own arithmetic (ReadSizeFallback).
      if (result > INT32_MAX - 16 || result > static_cast<uint64_t>(end - p)) return nullptr;
      size = static_cast<uint32_t>(result);
      return p;
    }
  }
  return nullptr;
}

const uint8_t* skip_field(uint32_t tag, const uint8_t* p, const uint8_t* end, int depth) noexcept {
  std::array<uint32_t, max_depth> open;  // numbers of the groups that are open
  int groups = 0;
  for (;;) {
    const uint32_t number = tag >> 3;
    if (number == 0) return nullptr;
    switch (tag & 7) {
      case varint: {
        uint64_t ignored;
        p = read_varint(p, end, ignored);
        break;
      }
      case fixed64:
        p = end - p >= 8 ? p + 8 : nullptr;
        break;
      case delimited: {
        uint32_t size;
        p = read_size(p, end, size);
        if (p) p += size;
        break;
      }
      case group:
        if (groups == depth) return nullptr;
        open[static_cast<size_t>(groups++)] = number;
        break;
      case end_group:
        if (groups == 0 || open[static_cast<size_t>(--groups)] != number) return nullptr;
        break;
      case fixed32:
        p = end - p >= 4 ? p + 4 : nullptr;
        break;
      default:
        return nullptr;
    }
    if (!p || groups == 0) return p;
    if (p == end) return nullptr;
    p = read_tag(p, end, tag);
    if (!p) return nullptr;
  }
}

}  // namespace feedline::flow::wire
