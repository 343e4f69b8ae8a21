// Parses records that are not protobuf messages: a record is the bytes of the pipeline's only feature.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "flowgraph/parse/columns.h"
#include "flowgraph/parse/row_error.h"
#include "flowgraph/pipeline/spec.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {

/// Parses raw records into a column. ExampleParser documents the functions that both parsers have.
class RawParser {
 public:
  /// Precondition: there is one feature: fixed, of dtype bytes, with one value.
  explicit RawParser(std::vector<FeatureSpec> features) : record_(std::move(features.front())) {}

  /// Returns nothing, because a raw record names no features.
  static std::vector<std::string> feature_names(const io::RecordView&) { return {}; }

  uint64_t arena_bound(uint64_t rows, uint64_t /*payload_bytes*/) const noexcept {
    return rows * sizeof(BytesRef) + alignof(BytesRef);
  }

  class Session {
   public:
    Session(const RawParser& parser, const ChunkRecords& records, Arena& arena)
        : record_(&parser.record_), column_{arena.take<BytesRef>(records.rows)} {}

    /// Sets the next rows of the column to the records' bytes. Refuses each record whose size is not the feature's
    /// length.
    void parse(std::span<const io::RecordView> records, std::vector<RowError>& errors);

    std::span<const Column> columns() const noexcept { return {&column_, 1}; }
    uint64_t layout_hits() const noexcept { return 0; }
    std::vector<bool> seen() const { return {row_ > 0}; }
    std::span<const uint64_t> lacking() const noexcept { return {&none_, 1}; }

   private:
    static constexpr uint64_t none_ = 0;
    const FeatureSpec* record_;
    Column column_;
    uint32_t row_ = 0;
  };

 private:
  FeatureSpec record_;
};

}  // namespace feedline::flow
