#include "tool/convert/example_writer.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace feedline::tool {
namespace {

enum Field : uint8_t { first = 1, bytes_list = 1, float_list = 2, int64_list = 3, map_key = 1, map_value = 2 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

size_t varint_size(uint64_t value) { return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7; }

/// Writes the tag and length that precede `size` bytes of a message, a string or packed numbers.
void put_size(std::string& out, Field field, size_t size) {
  put_varint(out, field << 3 | 2);
  put_varint(out, size);
}

void put(std::string& out, Field field, std::string_view content) {
  put_size(out, field, content.size());
  out += content;
}

static_assert(std::endian::native == std::endian::little, "floats are written as they lie in memory");

}  // namespace

ExampleWriter::ExampleWriter(std::vector<std::string> keys) : by_key_(keys.size()) {
  for (std::string& key : keys) features_.push_back({std::move(key), {}, false});
  std::iota(by_key_.begin(), by_key_.end(), size_t{0});
  std::sort(by_key_.begin(), by_key_.end(), [&](size_t a, size_t b) { return features_[a].key < features_[b].key; });
}

std::string& ExampleWriter::begin(size_t feature) {
  features_[feature].set = true;
  features_[feature].message.clear();
  return features_[feature].message;
}

void ExampleWriter::set_bytes(size_t feature, std::span<const std::string_view> values) {
  size_t size = 0;
  for (const std::string_view value : values) size += 1 + varint_size(value.size()) + value.size();
  std::string& message = begin(feature);
  message.reserve(1 + varint_size(size) + size);
  put_size(message, bytes_list, size);
  for (const std::string_view value : values) put(message, first, value);
}

void ExampleWriter::set_floats(size_t feature, std::span<const float> values) {
  list_.clear();
  if (!values.empty()) put(list_, first, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  put(begin(feature), float_list, list_);
}

void ExampleWriter::set_ints(size_t feature, std::span<const int64_t> values) {
  size_t size = 0;
  for (const int64_t value : values) size += varint_size(static_cast<uint64_t>(value));
  list_.clear();
  if (!values.empty()) put_size(list_, first, size);
  for (const int64_t value : values) put_varint(list_, static_cast<uint64_t>(value));
  put(begin(feature), int64_list, list_);
}

std::span<const std::byte> ExampleWriter::finish() {
  const auto size_of = [](const Feature& feature) {
    const size_t key = feature.key.size(), value = feature.message.size();
    return 1 + varint_size(key) + key + 1 + varint_size(value) + value;
  };
  size_t entries = 0;
  for (const Feature& feature : features_)
    if (feature.set) entries += 1 + varint_size(size_of(feature)) + size_of(feature);
  record_.clear();
  record_.reserve(1 + varint_size(entries) + entries);
  put_size(record_, first, entries);
  for (const size_t i : by_key_) {
    Feature& feature = features_[i];
    if (!std::exchange(feature.set, false)) continue;
    put_size(record_, first, size_of(feature));
    put(record_, map_key, feature.key);
    put(record_, map_value, feature.message);
  }
  return std::as_bytes(std::span(record_));
}

}  // namespace feedline::tool
