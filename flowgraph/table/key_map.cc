#include "flowgraph/table/key_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/audit.h"
#include "base/format_count.h"
#include "base/utf8.h"
#include "feedline/error.h"

namespace feedline::flow {
namespace {

uint64_t hash_of(KeyMap::Key key) noexcept { return hash64({reinterpret_cast<const char*>(key.data()), key.size()}); }
uint32_t tag_of(uint64_t hash) noexcept { return static_cast<uint32_t>(hash >> 32); }

uint64_t buckets_for(uint64_t rows) noexcept { return std::bit_ceil(2 * rows + 1); }

}  // namespace

uint64_t KeyMap::memory_bytes(uint64_t file_bytes, uint64_t rows) noexcept {
  return file_bytes + (rows + 1) * sizeof(uint64_t) + buckets_for(rows) * sizeof(Bucket);
}

uint64_t KeyMap::count_lines(const io::SourceFile& file) {
  constexpr uint64_t bytes_at_once = 1 << 20;
  std::vector<std::byte> bytes(std::min(file.size(), bytes_at_once));
  uint64_t lines = 0;
  bool in_line = false;  // the bytes so far end within a line
  for (uint64_t at = 0; at < file.size(); at += bytes.size()) {
    const std::span some = std::span(bytes).first(std::min<uint64_t>(bytes.size(), file.size() - at));
    file.read_at(at, some);
    lines += static_cast<uint64_t>(std::ranges::count(some, std::byte{'\n'}));
    in_line = some.back() != std::byte{'\n'};
  }
  return lines + in_line;
}

KeyMap::KeyMap(const io::SourceFile& file, uint64_t rows) {
  if (rows > most_names)
    throw Error(
        Category::bad_pipeline,
        fmt::format("the table has {} rows, but only the rows of a table of at most {} rows can be looked up by name; "
                    "look the rows up by number",
                    rows, most_names),
        Place::of_file(file.path()));
  text_.resize(file.size());
  file.read_at(0, text_);
  file.check_unchanged();
  if (std::string_view(reinterpret_cast<const char*>(text_.data()), text_.size()).starts_with(byte_order_mark))
    throw Error(Category::bad_pipeline,
                "the file begins with a byte order mark, which would belong to the first name; save it as UTF-8 "
                "without this mark",
                Place::of_file(file.path()));
  find_lines(file, rows);
  buckets_.resize(buckets_for(rows));
  for (uint64_t row = 0; row < rows; row++) insert(static_cast<uint32_t>(row), file);
}

void KeyMap::find_lines(const io::SourceFile& file, uint64_t rows) {
  begins_.reserve(rows + 1);
  uint64_t lines = 0;
  const std::byte *const begin = text_.data(), *const end = begin + text_.size();
  for (const std::byte* at = begin; at != end; lines++) {
    if (lines < rows) begins_.push_back(static_cast<uint64_t>(at - begin));
    at = std::find(at, end, std::byte{'\n'});
    if (at != end) at++;
  }
  if (lines != rows)
    throw Error(Category::bad_pipeline,
                fmt::format("the file has {}, but the table has {}; write the name of each row on its own line",
                            format_count(lines, "line"), format_count(rows, "row")),
                Place::of_file(file.path()));
  const bool ends_with_newline = !text_.empty() && text_.back() == std::byte{'\n'};
  begins_.push_back(text_.size() + !ends_with_newline);
}

KeyMap::Key KeyMap::name(uint64_t row) const noexcept {
  const uint64_t begin = begins_[row];
  Key line(text_.data() + begin, begins_[row + 1] - 1 - begin);
  if (!line.empty() && line.back() == std::byte{'\r'}) line = line.first(line.size() - 1);
  return line;
}

void KeyMap::insert(uint32_t row, const io::SourceFile& file) {
  const Key added = name(row);
  const uint64_t hash = hash_of(added), mask = buckets_.size() - 1;
  digest_ = mix64(digest_ ^ hash);
  for (uint64_t at = hash & mask;; at = (at + 1) & mask) {
    Bucket& bucket = buckets_[at];
    if (bucket.after == 0) {
      bucket = {tag_of(hash), row + 1};
      return;
    }
    if (bucket.tag == tag_of(hash) && std::ranges::equal(name(bucket.after - 1), added))
      throw Error(Category::bad_pipeline,
                  fmt::format("the name {} is on line {} and on line {}; write each name only once", quoted(added),
                              bucket.after, row + 1),
                  Place::of_file(file.path()));
  }
}

void KeyMap::find(std::span<const Key> keys, std::span<int64_t> rows) const noexcept {
  // The buckets of all keys are prefetched together, because each bucket lies in a different part of memory.
  std::array<uint64_t, 256> hashes;
  const uint64_t mask = buckets_.size() - 1;
  for (size_t i = 0; i < keys.size(); i++) {
    hashes[i] = hash_of(keys[i]);
    __builtin_prefetch(&buckets_[hashes[i] & mask]);
  }
  for (size_t i = 0; i < keys.size(); i++) {
    rows[i] = -1;
    for (uint64_t at = hashes[i] & mask; buckets_[at].after != 0; at = (at + 1) & mask) {
      const Bucket& bucket = buckets_[at];
      if (bucket.tag != tag_of(hashes[i]) || !std::ranges::equal(name(bucket.after - 1), keys[i])) continue;
      rows[i] = bucket.after - 1;
      break;
    }
  }
}

std::string quoted(KeyMap::Key key) {
  constexpr size_t most = 200;
  const std::string_view begin = cut_text({reinterpret_cast<const char*>(key.data()), key.size()}, most);
  const bool is_text = is_utf8(begin);
  std::string text = "'";
  for (const char byte : begin) {
    const auto c = static_cast<unsigned char>(byte);
    if (c < 0x20 || c == 0x7f || (c > 0x7f && !is_text) || c == '\'' || c == '\\')
      text += fmt::format("\\x{:02x}", c);
    else
      text += byte;
  }
  return text + (key.size() > most ? fmt::format("'... ({} bytes)", key.size()) : "'");
}

}  // namespace feedline::flow
