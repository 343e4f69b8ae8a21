#include "flowgraph/parse/feature_message.h"

#include <algorithm>
#include <cstring>

#include "flowgraph/parse/columns.h"
#include "flowgraph/parse/packed_varints.h"
#include "flowgraph/parse/wire.h"

namespace feedline::flow {
namespace {

constexpr uint32_t run_tag = wire::tag(1, wire::delimited);  // of a run of packed values, and of one bytes value
constexpr uint32_t single_int_tag = wire::tag(1, wire::varint);
constexpr uint32_t single_float_tag = wire::tag(1, wire::fixed32);

// add_bytes(), add_floats() and add_ints() add the values of a list, as add_feature() adds the values of a Feature.

const uint8_t* add_bytes(const uint8_t* p, const uint8_t* end, int depth, FoundValues& found) {
  const uint64_t capacity = found.wanted == ListKind::bytes ? found.capacity : 0;
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return field;
    if (tag == run_tag) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return field;
      if (found.count < capacity) {
        static_cast<BytesRef*>(found.values)[found.count] = {reinterpret_cast<const std::byte*>(p), size};
      }
      if (size != found.length && found.other_length == any_length) found.other_length = size;
      found.count++;
      p += size;
    } else {
      p = wire::skip_field(tag, p, end, depth);
      if (!p) return field;
    }
  }
  return nullptr;
}

const uint8_t* add_floats(const uint8_t* p, const uint8_t* end, int depth, FoundValues& found) {
  const uint64_t capacity = found.wanted == ListKind::float32 ? found.capacity : 0;
  const auto add = [&](const uint8_t* from, uint64_t count) {
    if (found.count + count <= capacity && count != 0) {
      std::memcpy(static_cast<float*>(found.values) + found.count, from, count * sizeof(float));
    }
    found.count += count;
  };
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return field;
    if (tag == run_tag) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p || size % sizeof(float) != 0) return field;
      add(p, size / sizeof(float));
      p += size;
    } else if (tag == single_float_tag) {
      if (end - p < 4) return field;
      add(p, 1);
      p += sizeof(float);
    } else {
      p = wire::skip_field(tag, p, end, depth);
      if (!p) return field;
    }
  }
  return nullptr;
}

const uint8_t* add_ints(const uint8_t* p, const uint8_t* end, int depth, FoundValues& found) {
  const uint64_t capacity = found.wanted == ListKind::int64 ? found.capacity : 0;
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return field;
    if (tag == run_tag) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return field;
      const uint8_t* after = p + size;
      const uint64_t left = capacity - std::min(capacity, found.count);
      uint64_t count = wire::decode_varints(p, after, static_cast<int64_t*>(found.values) + found.count, left);
      if (count == wire::unfit) {  // values that do not fit or are not wanted are checked all the same
        uint64_t ignored;
        for (count = 0; p != after; count++) {
          p = wire::read_varint(p, after, ignored);
          if (!p) return field;
        }
      }
      found.count += count;
      p = after;
    } else if (tag == single_int_tag) {
      uint64_t value;
      p = wire::read_varint(p, end, value);
      if (!p) return field;
      if (found.count < capacity) static_cast<int64_t*>(found.values)[found.count] = static_cast<int64_t>(value);
      found.count++;
    } else {
      p = wire::skip_field(tag, p, end, depth);
      if (!p) return field;
    }
  }
  return nullptr;
}

}  // namespace

const uint8_t* add_feature(const uint8_t* p, const uint8_t* end, int depth, FoundValues& found) {
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return field;
    if (const uint32_t number = tag >> 3; (tag & 7) == wire::delimited && number >= 1 && number <= 3) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return field;
      const ListKind kind = static_cast<ListKind>(number);
      if (found.found != kind) found.restart(kind);  // a oneof: a different kind discards the values so far
      const uint8_t* after = p + size;
      const uint8_t* broken = kind == ListKind::bytes     ? add_bytes(p, after, depth - 1, found)
                              : kind == ListKind::float32 ? add_floats(p, after, depth - 1, found)
                                                          : add_ints(p, after, depth - 1, found);
      if (broken) return broken;
      p = after;
    } else {
      p = wire::skip_field(tag, p, end, depth);
      if (!p) return field;
    }
  }
  return nullptr;
}

}  // namespace feedline::flow
