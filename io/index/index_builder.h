// Builds an index from records in the order of their file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/rank_message.h"
#include "io/index/index.h"
#include "io/records/record_scanner.h"

namespace feedline::io {

/// Builds the index of a whole file, or of a chain. A chain is a sequence of records without gaps that begins anywhere
/// in a file, so that several threads can build parts of one index. append() joins a chain to the builder of the
/// records before it: the whole chain, or its records from a meeting point on (see Meeting). Not thread-safe.
class IndexBuilder {
 public:
  /// Makes a builder for records that begin at `start` or later. `stride` is the number of bytes between index entries.
  explicit IndexBuilder(uint64_t stride, uint64_t start = 0);

  /// Adds records without gaps between them. The first record begins at `offset`, at or after end(). In a chain it
  /// begins at end().
  void add(uint64_t offset, std::span<const RecordView> records);

  /// A place in a chain from which the chain can be appended: where its record number `record` begins. Apart from the
  /// chain's start, only entries that begin a group are such places, because sums and sizes are known only for all
  /// records of a group together.
  struct Meeting {
    uint64_t offset, record;
  };
  /// Returns the first meeting point of this chain at or after `offset`, if there is one.
  std::optional<Meeting> meeting(uint64_t offset) const;

  /// Adds the records of `chain` from the place `from` on, which is the chain's start or one of its meeting points.
  /// Preconditions: the chain has the same stride, and `from` does not lie before end().
  void append(const IndexBuilder& chain, const Meeting& from);

  /// Writes this chain to a message for other ranks, which use the same stride.
  void put_into(MessageWriter& message) const;
  /// Reads a chain from another rank's message. Throws Error bad_pipeline if it cannot be a chain of a file of
  /// `file_size` bytes. A chain that is accepted can safely be appended, but it may be wrong. The caller must check the
  /// index that is made from it with contradiction() (io/index/index_check.h).
  static IndexBuilder get_from(MessageReader& message, uint64_t stride, uint64_t file_size);

  uint64_t start() const noexcept { return start_; }
  /// Returns where the last record ends, or start() if there is no record.
  uint64_t end() const noexcept { return end_; }
  uint64_t records() const noexcept { return records_; }

  /// Returns the index of a file of `stream_size` bytes (inflated), without its compression and its bad regions. The
  /// builder must not be used after this.
  FileIndex finish(uint64_t stream_size);

 private:
  struct StrideGroup {  // what is known of the records that begin in a group of strides
    uint64_t sum = 0;
    uint32_t smallest = UINT32_MAX, largest = 0;

    void add(const StrideGroup& other) noexcept;
  };
  struct Totals {
    uint64_t start, end, records, payload_bytes;
  };
  bool holds_in(uint64_t file_size) const noexcept;
  uint64_t group_of(uint64_t offset) const noexcept { return offset / (stride_ * strides_per_group); }
  StrideGroup& group(uint64_t number);

  const uint64_t stride_, start_;
  // entries_[i] belongs to stride number first_stride_ + i, and groups_[i] to group number first_group_ + i.
  const uint64_t first_stride_, first_group_;
  uint64_t wanted_;  // a multiple of the stride: the first record that begins at or after it makes the next entry
  std::vector<IndexEntry> entries_;
  std::vector<StrideGroup> groups_;
  uint64_t records_ = 0, payload_bytes_ = 0, end_;
};

}  // namespace feedline::io
