// Records, in the order of their file -> where they are, and their sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/rank_message.h"
#include "io/index/index.h"
#include "io/records/record_scanner.h"

namespace feedline::io {

/// Of a whole file, or of a chain: records that lie one behind the other without a gap. A chain can be appended to what
/// lies before it, from its first record or from one of its meeting points on. Not thread-safe.
class IndexBuilder {
 public:
  /// `start`: no record begins before.
  explicit IndexBuilder(uint64_t stride, uint64_t start = 0);

  /// The first begins at `offset`, behind those added before; each of the others where the one before it ends.
  void add(uint64_t offset, std::span<const RecordView> records);

  /// Where record number `record` of a chain begins. Only entries that begin a group can be appended from: what is
  /// known of the records of a group is known of all of them together.
  struct Meeting {
    uint64_t offset, record;
  };
  /// The first meeting point of this chain at or behind `offset`, if there is one.
  std::optional<Meeting> meeting(uint64_t offset) const;

  /// Adds the records of `chain`, which has this stride, from `from` on: its start, or a meeting point.
  void append(const IndexBuilder& chain, const Meeting& from);

  /// For other ranks, and from one; the stride is the same on all. Throws Error bad_pipeline for what is no chain of a
  /// file of `file_size` bytes. What is accepted can be appended, but may be wrong: hold the index of which it becomes
  /// a part against contradiction() (io/index/index_check.h).
  void put_into(MessageWriter& message) const;
  static IndexBuilder get_from(MessageReader& message, uint64_t stride, uint64_t file_size);

  uint64_t start() const noexcept { return start_; }
  /// Behind the last record; `start` where there is none.
  uint64_t end() const noexcept { return end_; }
  uint64_t records() const noexcept { return records_; }

  /// Everything of a file but its compression and bad regions. The builder is used up.
  FileIndex finish(uint64_t stream_size);

 private:
  struct Group {
    uint64_t sum = 0;
    uint32_t smallest = UINT32_MAX, largest = 0;

    void add(const Group& other) noexcept;
  };
  struct Totals {
    uint64_t start, end, records, payload_bytes;
  };
  bool holds_in(uint64_t file_size) const noexcept;
  uint64_t group_of(uint64_t offset) const noexcept { return offset / (stride_ * strides_per_group); }
  Group& group(uint64_t number);

  const uint64_t stride_, start_;
  // entries_[i] is that of stride number first_stride_ + i.
  const uint64_t first_stride_, first_group_;
  uint64_t wanted_;  // a multiple of the stride: the record that begins at or behind it makes the next entry
  std::vector<IndexEntry> entries_;
  std::vector<Group> groups_;
  uint64_t records_ = 0, payload_bytes_ = 0, end_;
};

}  // namespace feedline::io
