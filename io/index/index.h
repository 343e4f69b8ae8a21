// Where the records of a file are: the result of the counting pass (io/index/count_records.h), which verifies every byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "feedline/records.h"
#include "io/records/bad_region.h"

namespace feedline::io {

inline constexpr uint64_t default_stride = 16384;
inline constexpr uint64_t default_record_limit = uint64_t{256} << 20;
inline constexpr uint64_t strides_per_group = 64;

struct IndexEntry {
  uint64_t offset = 0;  // of the record's header; in the inflated stream of a compressed file
  uint64_t record = 0;  // good records before it

  bool operator==(const IndexEntry&) const = default;
};

/// Rows that nobody changes any more. Copies share them.
template <typename T>
class Table {
 public:
  Table() = default;
  Table(std::vector<T> rows) : owner_(std::make_shared<const std::vector<T>>(std::move(rows))), rows_(*owner_) {}

  size_t size() const noexcept { return rows_.size(); }
  bool empty() const noexcept { return rows_.empty(); }
  const T& operator[](size_t i) const noexcept { return rows_[i]; }
  const T& front() const noexcept { return rows_.front(); }
  const T& back() const noexcept { return rows_.back(); }
  auto begin() const noexcept { return rows_.begin(); }
  auto end() const noexcept { return rows_.end(); }
  operator std::span<const T>() const noexcept { return rows_; }

  uint64_t memory_bytes() const noexcept { return owner_ ? owner_->capacity() * sizeof(T) : 0; }

 private:
  std::shared_ptr<const std::vector<T>> owner_;
  std::span<const T> rows_;
};

/// Bad regions of a file whose messages are kept.
inline constexpr size_t kept_messages = 100;
/// A file with more bad regions has no index.
inline constexpr size_t most_bad_regions = size_t{1} << 22;

struct FileIndex {
  Compression compression = Compression::none;  // what it is, never automatic
  uint64_t stride = default_stride;
  uint64_t records = 0;          // good ones, and of their payloads:
  uint64_t payload_bytes = 0;    // all together
  uint64_t smallest_record = 0;  // 0 where there are no records
  uint64_t largest_record = 0;
  uint64_t end = 0;          // offset behind the last good record
  uint64_t stream_size = 0;  // of the file, inflated
  uint64_t audit = 0;        // sum of the good records' terms (base/audit.h)

  /// entries[k]: the first good record that begins at or behind k * stride; then {end, records}, for as many k as the
  /// stream has strides, and once more. So entries.front() is the first record, entries.back() is {end, records}.
  Table<IndexEntry> entries;
  /// sums[g]: of the terms of the records that begin in stride g * strides_per_group or one of those that follow, up to
  /// the next group: 1 MiB of file at the default stride. Together they are `audit`.
  Table<uint64_t> sums;
  std::vector<BadRegion> bad;  // ascending, disjoint; the good records lie between them without gaps

  uint64_t memory_bytes() const noexcept {
    return entries.memory_bytes() + sums.memory_bytes() + bad.capacity() * sizeof(BadRegion);
  }
};

}  // namespace feedline::io
