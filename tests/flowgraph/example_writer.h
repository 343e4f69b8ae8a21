// Writes Examples byte by byte, in every way that the wire format allows.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace feedline::test::wire {

/// Encodes a varint. `padding` is the number of redundant bytes after those that the value needs.
inline std::string varint(uint64_t value, int padding = 0) {
  std::string out;
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
  for (int i = 0; i < padding; i++) {
    out.back() = static_cast<char>(out.back() | 0x80);
    out += '\0';
  }
  return out;
}

inline std::string tag(uint32_t number, uint32_t type, int padding = 0) { return varint(number << 3 | type, padding); }

inline std::string delimited(uint32_t number, std::string_view content) {
  return tag(number, 2) + varint(content.size()) + std::string(content);
}

template <typename T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline std::string bytes_feature(const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += delimited(1, value);
  return delimited(1, list);
}

inline std::string float_feature(const std::vector<float>& values, bool packed = true) {
  std::string list;
  for (float value : values) list += (packed ? "" : tag(1, 5)) + raw(value);
  return delimited(2, packed ? delimited(1, list) : list);
}

inline std::string int64_feature(const std::vector<int64_t>& values, bool packed = true) {
  std::string list;
  for (int64_t value : values) list += (packed ? "" : tag(1, 0)) + varint(static_cast<uint64_t>(value));
  return delimited(3, packed ? delimited(1, list) : list);
}

inline std::string entry(std::string_view key, std::string_view feature) {
  return delimited(1, delimited(1, key) + delimited(2, feature));
}

/// Encodes an Example. `entries` are its encoded entries, concatenated.
inline std::string example(std::string_view entries) { return delimited(1, entries); }

}  // namespace feedline::test::wire
