// The records of one ticket: read, verified, parsed. Lives in a slot; goes back when the last user lets go.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/order/ticket.h"
#include "flowgraph/parse/columns.h"
#include "flowgraph/parse/example_parser.h"

namespace feedline::flow {

struct Plan;

/// What a record that was found bad is in the sum over the data (base/audit.h).
struct BadTerm {
  uint64_t as_stored = 0;    // by the CRC that stands in the file
  uint64_t as_computed = 0;  // by that of the payload: differs where one of the two was damaged
  bool lost = false;         // which record it was cannot be told
};

class Chunk : public std::enable_shared_from_this<Chunk> {
 public:
  Chunk(uint32_t slot, std::span<std::byte> data, std::span<std::byte> scratch)
      : slot_(slot), data_(data), scratch_(scratch) {}

  uint32_t slot() const noexcept { return slot_; }

  // Where it stands in the feed; set when the ticket is issued.
  uint64_t sequence = 0;
  Ticket ticket;

  std::span<std::byte> data() const noexcept { return data_; }
  /// Whether the bytes are the slot's own, and not a default of the pipeline's.
  bool holds(std::span<const std::byte> bytes) const noexcept;

  /// Where extent number `i` of a ticket lies in data(): each at its own block, or, inflated, one behind the other.
  /// Filled in by whoever issues the reads.
  std::vector<const std::byte*> extents;

  /// The read failed: nothing of the chunk can be used.
  std::optional<Error> failed;

  /// LAZY: bad regions that were passed over, and how many rows of the chunk come before each.
  struct PassedOver {
    uint32_t rows;
    Error error;
  };
  std::vector<PassedOver> passed_over;

  /// Verifies and parses all rows; then records() and the columns are there. A bad record or read error under RAISE
  /// ends the rows early: rows() is smaller than ticket.rows and `first_error` says why. Otherwise the bad row becomes
  /// a copy of its nearest good row, its number is in `filler` and its error in `errors`.
  void parse(const Plan& plan);

  uint32_t rows() const noexcept { return rows_; }
  /// Takes away the rows from `row` on: `error` says why.
  void end_before(uint32_t row, Error error) {
    rows_ = row;
    first_error = std::move(error);
  }
  std::span<const io::RecordView> records() const noexcept { return records_; }
  /// By number of feature.
  std::span<const Column> features() const noexcept { return features_; }
  /// By number of expression: double, one for each row.
  std::span<const Column> expressions() const noexcept { return expressions_; }
  /// What each row adds to a delivery's audit (base/audit.h); of filler it says nothing.
  std::span<const uint64_t> audit_terms() const noexcept { return audit_terms_; }
  /// The extent of the ticket that a row lies in.
  const Extent& extent_of(uint32_t row) const noexcept;
  /// Number of a row in its file.
  uint64_t record_of(uint32_t row) const noexcept { return extent_of(row).record_of(row); }
  /// Byte offset of a row in its (inflated) file.
  uint64_t offset_of(uint32_t row) const noexcept;

  std::optional<Error> first_error;
  std::vector<uint32_t> filler;    // ascending
  std::vector<Error> errors;       // as filler
  std::vector<BadTerm> bad_terms;  // as filler
  uint64_t layout_hits() const noexcept { return layout_hits_; }
  /// By number of feature: whether a record had it.
  const std::vector<bool>& seen() const noexcept { return seen_; }

 private:
  struct BadRow {
    uint32_t row;
    Error error;
    std::optional<BadTerm> term = {};  // none: its record is sound, only not what was wanted
  };
  struct Scan;
  Place place_of(const Plan& plan, uint32_t row, uint64_t offset, std::string feature = {}) const;
  void scan_and_parse(const Plan& plan, std::span<io::RecordView> records, Arena& arena, std::vector<BadRow>& bad);
  void evaluate(const Plan& plan, Arena& arena, std::vector<BadRow>& bad);
  void settle(const Plan& plan, std::vector<BadRow>& bad);
  void copy_row(const Plan& plan, uint32_t to, uint32_t from);

  const uint32_t slot_;
  const std::span<std::byte> data_, scratch_;
  uint32_t rows_ = 0;
  std::span<io::RecordView> records_;
  std::span<uint64_t> audit_terms_;
  std::vector<Column> features_, expressions_;
  uint64_t layout_hits_ = 0;
  std::vector<bool> seen_;
};

/// Records of record_type RAW: the one feature is the record as it lies. `errors` as of ExampleParser.
void take_raw(const FeatureSpec& feature, std::span<const io::RecordView> records, uint32_t first_row,
              const Column& column, std::vector<RowError>& errors);

using ChunkRef = std::shared_ptr<Chunk>;

}  // namespace feedline::flow
