// The parser of a pipeline's records, whatever their record type is.
//
// Only this unit knows which record types there are. Each record type is an alternative of two variants: AnyParser and
// AnySession. All parsers have the functions of ExampleParser, and all sessions those of ExampleParser::Session, with
// the same contracts. std::visit dispatches once for a block of records.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "flowgraph/parse/columns.h"
#include "flowgraph/parse/example_parser.h"
#include "flowgraph/parse/raw_parser.h"
#include "flowgraph/parse/row_error.h"
#include "flowgraph/parse/sequence_example_parser.h"
#include "flowgraph/pipeline/spec.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {

using AnyParser = std::variant<ExampleParser, SequenceExampleParser, RawParser>;
using AnySession = std::variant<ExampleParser::Session, SequenceExampleParser::Session, RawParser::Session>;

/// Parses records into columns. Immutable; any number of threads may use one parser.
class RecordParser {
 public:
  /// Makes the parser for the pipeline's features and record type, which validate() has made the same for all sources.
  explicit RecordParser(const PipelineSpec& spec);

  /// Returns how many arena bytes the columns of `rows` rows can take at most, whatever the records contain.
  /// `payload_bytes` is the size of the payloads of all these records together.
  uint64_t arena_bound(uint64_t rows, uint64_t payload_bytes) const noexcept;

  /// Returns the names of the features that a record has, each once, in the order of the record. Too slow for the hot
  /// path.
  std::vector<std::string> feature_names(const io::RecordView& record) const;

  /// Fills the columns of one chunk in blocks of records, in order. Only one thread may use a session at a time. The
  /// parser and the arena must outlive the session, and the parser must outlive the columns.
  class Session {
   public:
    /// Allocates the columns in the arena.
    Session(const RecordParser& parser, const ChunkRecords& records, Arena& arena);

    /// Parses the next records, of which there may be at most as many as rows are left. A record that is refused is
    /// added to `errors` (rows ascending, at most one error for each row) and leaves its row of every column
    /// unspecified. The records' memory must stay valid as long as the columns are used. Nothing outside a record is
    /// read.
    void parse(std::span<const io::RecordView> records, std::vector<RowError>& errors);

    /// One column for each feature, in the order of the features.
    std::span<const Column> columns() const noexcept;
    /// Returns how many records had the byte layout of earlier records (record_layout.h); always 0 for raw records.
    uint64_t layout_hits() const noexcept;
    /// Returns for each feature, by its number, whether any record so far had it, even if its values were refused.
    std::vector<bool> seen() const;
    /// Returns for each feature, by its number, in how many rows it was filled in because the record lacks it.
    std::span<const uint64_t> lacking() const noexcept;

   private:
    AnySession session_;
  };

 private:
  AnyParser parser_;
};

}  // namespace feedline::flow
