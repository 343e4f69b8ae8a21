// A chunk: the records of one ticket in memory, read, verified and parsed. A chunk is the contents of a slot. When its
// last user releases it, the slot is free again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/chunk/bad_record.h"
#include "flowgraph/order/ticket.h"
#include "flowgraph/parse/columns.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {

struct Schedule;

/// The chunk of one slot. It holds the records of one ticket. When the slot is used again, the same object holds the
/// records of the next ticket.
class Chunk : public std::enable_shared_from_this<Chunk> {
 public:
  /// Makes the chunk of slot number `slot`. `data` is the memory for the bytes as they are read from the file, and
  /// `scratch` the memory for the columns that are parsed from them. Both must outlive the chunk. `gap` is for tests:
  /// the gap of the Arena in `scratch` (columns.h), or 0 for an Arena without gaps.
  Chunk(uint32_t slot, std::span<std::byte> data, std::span<std::byte> scratch, size_t gap = 0)
      : slot_(slot), data_(data), scratch_(scratch), gap_(gap) {}

  uint32_t slot() const noexcept { return slot_; }

  // The number of the chunk's ticket in the feed, and the ticket. Both are set when the read is issued.
  uint64_t sequence = 0;
  Ticket ticket;

  std::span<std::byte> data() const noexcept { return data_; }
  /// Returns whether the bytes lie in the slot. (The bytes of a default value lie in the PipelineSpec.)
  bool holds(std::span<const std::byte> bytes) const noexcept;

  /// Where each extent of the ticket lies in data(). The extents of an uncompressed file each begin in a disk block of
  /// their own; inflated extents lie one after another. Set by the code that issues the reads.
  std::vector<const std::byte*> extents;

  /// Returns the bytes [offset, offset + length) of the file, or of its inflated stream, in extent number `extent`.
  /// Precondition: they lie in the extent, and `extents` is set.
  std::span<std::byte> bytes_at(size_t extent, uint64_t offset, uint64_t length) noexcept {
    const auto begin = static_cast<size_t>(extents[extent] - data_.data());
    return data_.subspan(begin + (offset - ticket.extents[extent].offset), length);
  }

  /// The error of a failed read. If it is set, nothing of the chunk can be used.
  std::optional<Error> failed;

  /// index.mode LAZY: the bad regions that were passed over. BadRecord::row of a region is the chunk's first row after
  /// it.
  std::vector<BadRecord> passed_over;

  /// Verifies and parses all rows, and sets records() and the columns. If the read failed, there are no rows, and
  /// `first_error` is the reason. With `on_error: RAISE` a bad record ends the rows early: rows() is smaller than
  /// ticket.rows, and `first_error` says why. Otherwise a bad row becomes filler, its features are zeros, and it
  /// is in `bad`.
  void parse(const Schedule& schedule);

  /// The number of rows that are good or filler.
  uint32_t rows() const noexcept { return rows_; }
  /// Removes the rows from `row` on, and the bad records among them, because of `error`.
  void end_before(uint32_t row, Error error) {
    rows_ = row;
    while (!bad.empty() && bad.back().row >= row) bad.pop_back();
    first_error = std::move(error);
  }
  std::span<const io::RecordView> records() const noexcept { return records_; }
  /// One column for each feature of the pipeline.
  std::span<const Column> features() const noexcept { return features_; }
  /// One column for each expression of the pipeline: an int64_t or a double for each row, as its type says.
  std::span<const Column> expressions() const noexcept { return expressions_; }
  /// For each row, its record's term in the audit of what is delivered (base/audit.h). Undefined for filler.
  std::span<const uint64_t> audit_terms() const noexcept { return audit_terms_; }
  /// Returns the extent of the ticket in which a row lies.
  const Extent& extent_of(uint32_t row) const noexcept;
  /// Returns the number of a row's record in its file.
  uint64_t record_of(uint32_t row) const noexcept { return extent_of(row).record_of(row); }
  /// Returns the byte offset of a row's record in its (inflated) file.
  uint64_t offset_of(uint32_t row) const noexcept;
  /// Returns the place of a row's record for an error, with the feature that the error is about.
  Place place_of(const Schedule& schedule, uint32_t row, std::string feature = {}) const {
    return place_of(schedule, row, offset_of(row), std::move(feature));
  }

  std::optional<Error> first_error;  // why the rows end early
  std::vector<BadRecord> bad;        // the records of the rows that are filler, ascending by row
  /// Returns whether a row is filler.
  bool is_bad(uint32_t row) const noexcept;
  /// The number of records whose byte layout was that of earlier records (RecordParser::Session::layout_hits()).
  uint64_t layout_hits() const noexcept { return layout_hits_; }
  /// For each feature of the pipeline, whether any record had it.
  const std::vector<bool>& seen() const noexcept { return seen_; }
  /// The number of records that could be parsed; and, for each feature of the pipeline, how many of these lack it, so
  /// that it was filled in. Formulas may have refused some of them. If there is a `first_error`, lacking() also counts
  /// records after the end.
  uint32_t parsed() const noexcept { return parsed_; }
  const std::vector<uint64_t>& lacking() const noexcept { return lacking_; }

 private:
  struct Scan;
  Place place_of(const Schedule& schedule, uint32_t row, uint64_t offset, std::string feature = {}) const;
  void scan_and_parse(const Schedule& schedule, std::span<io::RecordView> records, Arena& arena);
  void evaluate(const Schedule& schedule, Arena& arena);

  const uint32_t slot_;
  const std::span<std::byte> data_, scratch_;
  const size_t gap_;
  uint32_t rows_ = 0, parsed_ = 0;
  std::span<io::RecordView> records_;
  std::span<uint64_t> audit_terms_;
  std::vector<Column> features_, expressions_;
  uint64_t layout_hits_ = 0;
  std::vector<bool> seen_;
  std::vector<uint64_t> lacking_;
};

using ChunkRef = std::shared_ptr<Chunk>;

}  // namespace feedline::flow
