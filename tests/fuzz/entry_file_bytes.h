// The bytes of a cache's entry file, read in the plainest way.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/cache/entry_file.h"
#include "io/records/crc32c.h"

namespace feedline::test {

inline std::string read_file(const std::string& path) {
  std::error_code none;
  const auto size = std::filesystem::file_size(path, none);
  std::string bytes(none ? 0 : size, '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

inline uint32_t sum_of(std::string_view bytes) { return io::crc32c(std::as_bytes(std::span(bytes))); }

/// The bytes of an entry file, read as the head of io/cache/entry_file.h describes it.
struct EntryFileBytes {
  static constexpr uint64_t page = 4096, row_bytes = 32;
  static constexpr uint64_t next_at = 128;  // where the header says how far the data is taken
  std::string bytes;

  template <typename T>
  T at(uint64_t offset) const {
    T value{};
    if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }
  template <typename T>
  void set(uint64_t offset, T value) {
    if (offset + sizeof value <= bytes.size()) std::memcpy(bytes.data() + offset, &value, sizeof value);
  }
  static uint64_t row(uint64_t entry) { return page + entry * row_bytes; }
  static uint64_t table_bytes(uint64_t entries) { return page + (entries * row_bytes + page - 1) / page * page; }
  uint32_t header_sum() const { return sum_of(std::string_view(bytes).substr(0, 32)); }
  uint32_t row_sum(uint64_t entry) const {
    const uint64_t all[] = {entry, at<uint32_t>(row(entry) + 4), at<uint64_t>(row(entry) + 8),
                            at<uint64_t>(row(entry) + 16)};
    return io::crc32c(std::as_bytes(std::span(all)));
  }

  std::optional<io::EntryLayout> layout(uint64_t content) const {
    const io::EntryLayout layout{at<uint64_t>(16), at<uint64_t>(24)};
    constexpr uint64_t most = uint64_t{1} << 48;
    const bool whole = bytes.starts_with("feedcch1") && at<uint64_t>(8) == content &&
                       at<uint32_t>(32) == header_sum() && layout.entries < most && layout.data_bytes < most &&
                       bytes.size() >= table_bytes(layout.entries);
    return whole ? std::optional(layout) : std::nullopt;
  }
  bool is_foreign() const {
    const std::string_view first = std::string_view(bytes).substr(0, 8);
    return first.size() == 8 && first != "feedcch1" && first != std::string_view("\0\0\0\0\0\0\0\0", 8);
  }
  /// Returns the bytes of an entry whose sums are right, valid or not.
  std::optional<std::string_view> entry(uint64_t number, const io::EntryLayout& layout) const {
    if (row(number) + row_bytes > bytes.size() || at<uint32_t>(row(number) + 24) != row_sum(number)) return {};
    const auto offset = at<uint64_t>(row(number) + 8), size = at<uint64_t>(row(number) + 16);
    const uint64_t begin = table_bytes(layout.entries) + offset;
    if (size > layout.data_bytes || offset > layout.data_bytes - size || begin + size > bytes.size()) return {};
    const std::string_view found = std::string_view(bytes).substr(begin, size);
    return sum_of(found) == at<uint32_t>(row(number) + 4) ? std::optional(found) : std::nullopt;
  }
};

}  // namespace feedline::test
