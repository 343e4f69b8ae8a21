// The index of a file: where its records are, and sums of their audit terms (base/audit.h). The counting pass
// (io/index/count_records.h), which verifies every byte of the file, makes it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "feedline/records.h"
#include "io/index/seek_points.h"
#include "io/records/bad_region.h"

namespace feedline::io {

inline constexpr uint64_t default_stride = 16384;                      // bytes
inline constexpr uint64_t default_record_limit = uint64_t{256} << 20;  // bytes
inline constexpr uint64_t strides_per_group = 64;
/// The fewest bytes of the inflated stream between two seek points. A window, of 32 KiB, is kept for each.
inline constexpr uint64_t fewest_seek_bytes = uint64_t{1} << 20;
/// Returns the fewest bytes of the inflated stream between two seek points of an index with this stride.
constexpr uint64_t seek_spacing(uint64_t stride) noexcept {
  return std::max(stride * strides_per_group, fewest_seek_bytes);
}

/// A place in a file at which a good record begins.
struct IndexEntry {
  uint64_t offset = 0;  // where the record's header begins: bytes of the file, or of the inflated stream
  uint64_t record = 0;  // the number of good records before it

  bool operator==(const IndexEntry&) const = default;
};

/// An array that never changes. Copies share its memory.
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

/// The maximum number of bad regions of a file whose messages are kept.
inline constexpr size_t kept_messages = 100;
/// The largest number of bad regions in an index. A file with more of them has no index.
inline constexpr size_t most_bad_regions = size_t{1} << 22;

/// The index of one file. Offsets and sizes are in bytes of the file or, if it is compressed, of the inflated stream.
struct FileIndex {
  Compression compression = Compression::none;  // the file's compression, never `automatic`
  uint64_t stride = default_stride;             // bytes between entries
  uint64_t records = 0;                         // the number of good records
  uint64_t payload_bytes = 0;                   // the sum of the sizes of their payloads
  uint64_t smallest_record = 0;                 // the smallest payload; 0 if there are no records
  uint64_t largest_record = 0;                  // the largest payload; 0 if there are no records
  uint64_t end = 0;                             // where the last good record ends
  uint64_t stream_size = 0;                     // the size of the file after inflating
  uint64_t audit = 0;                           // the sum of the good records' audit terms (base/audit.h)

  /// entries[k] is the first good record that begins at or after k * stride, or {end, records} if there is none. There
  /// is an entry for each stride of the stream, and one more. So entries.front() is the first record, and
  /// entries.back() is {end, records}.
  Table<IndexEntry> entries;
  /// sums[g] is the sum of the audit terms of the records that begin in group g. A group is strides_per_group strides,
  /// which is 1 MiB of the file at the default stride. All sums together make `audit`.
  Table<uint64_t> sums;
  /// If the file is compressed: places from which it can be inflated, ascending, and their deflated windows. They lie
  /// seek_spacing() apart, or further where no deflate block begins.
  Table<SeekEntry> seek_points;
  Table<std::byte> windows;
  /// The bad regions, ascending and disjoint. The good records lie between them without gaps.
  std::vector<BadRegion> bad;

  /// Returns the number of the last seek point at or before `offset` of the stream, from 1 on, or 0 for the front of
  /// the file.
  size_t seek_point_before(uint64_t offset) const noexcept {
    const auto next = std::upper_bound(seek_points.begin(), seek_points.end(), offset,
                                       [](uint64_t at, const SeekEntry& entry) { return at < entry.point.offset; });
    return static_cast<size_t>(next - seek_points.begin());
  }
  /// Returns the deflated window of seek point `number`, from 1 on.
  std::span<const std::byte> window_of(size_t number) const noexcept {
    const uint64_t begin = number == 1 ? 0 : seek_points[number - 2].window_end;
    return std::span<const std::byte>(windows).subspan(begin, seek_points[number - 1].window_end - begin);
  }

  /// Returns the bytes of memory that the tables take. Messages of bad regions are not included.
  uint64_t memory_bytes() const noexcept {
    return entries.memory_bytes() + sums.memory_bytes() + seek_points.memory_bytes() + windows.memory_bytes() +
           bad.capacity() * sizeof(BadRegion);
  }
};

}  // namespace feedline::io
