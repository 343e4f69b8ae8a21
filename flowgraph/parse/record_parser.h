// The parser of a pipeline's records: one for each record type.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "flowgraph/parse/columns.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/rows/row_error.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {

/// Parses records into columns. Immutable; any number of threads may use one parser.
class RecordParser {
 public:
  /// Fills the columns of one chunk in blocks of records, in order. Only one thread may use a session at a time.
  class Session {
   public:
    virtual ~Session() = default;

    /// Parses the next records. There may be at most as many records as rows are left. A record that is refused is
    /// added to `errors` (rows ascending, at most one error for each row) and leaves its row of every column
    /// unspecified. Allocates memory only for errors, and to learn layouts that it has not seen before. The records'
    /// memory must stay valid as long as the columns are used. Nothing outside a record is read.
    virtual void parse(std::span<const io::RecordView> records, std::vector<RowError>& errors) = 0;
    /// Leaves the next row of every column unspecified, because its record is damaged. The row counts neither in seen()
    /// nor in lacking().
    virtual void skip_row() noexcept = 0;

    /// One column for each feature, in the order of the features.
    virtual std::span<const Column> columns() const noexcept = 0;
    /// Returns how many records had the byte layout of earlier records (record_layout.h), so that the fast way of
    /// parsing was enough; always 0 for raw records.
    virtual uint64_t layout_hits() const noexcept = 0;
    /// Returns for each feature, by its number, whether any record so far had it, even if its values were refused.
    virtual std::vector<bool> seen() const = 0;
    /// Returns for each feature, by its number, in how many rows it was filled in because the record lacks it.
    virtual std::span<const uint64_t> lacking() const noexcept = 0;
  };

  virtual ~RecordParser() = default;

  /// Returns an upper bound of the arena bytes that the columns of `rows` rows and their lists of values need, whatever
  /// the records contain. `payload_bytes` is the total size of the records' payloads.
  virtual uint64_t arena_bound(uint64_t rows, uint64_t payload_bytes) const noexcept = 0;

  /// Returns the names of the features that a record has, each once, in the order of the record. Too slow for the hot
  /// path.
  virtual std::vector<std::string> feature_names(const io::RecordView& record) const = 0;

  /// Begins to parse a chunk, and allocates the columns in the arena. The parser and the arena must outlive the
  /// session. The parser must outlive the columns, too, because columns refer to default values in the parser.
  virtual std::unique_ptr<Session> begin(const ChunkRecords& records, Arena& arena) const = 0;
};

/// Makes the parser of tf.train.Example (example_parser.cc).
std::unique_ptr<const RecordParser> example_parser(std::vector<FeatureSpec> features);
/// Makes the parser of tf.train.SequenceExample (sequence_example_parser.cc). A feature whose `where` is feature_list
/// is looked for in the feature lists, every other feature in the context.
std::unique_ptr<const RecordParser> sequence_example_parser(std::vector<FeatureSpec> features);
/// Makes the parser of records that are not protobuf messages: a record is the bytes of the only feature. Precondition:
/// the feature is fixed, of dtype bytes, with one value.
std::unique_ptr<const RecordParser> raw_parser(std::vector<FeatureSpec> features);

/// Makes the parser for the pipeline's features and record type, which is the same for all sources (validate() checks
/// this).
std::unique_ptr<const RecordParser> record_parser(const PipelineSpec& spec);

}  // namespace feedline::flow
