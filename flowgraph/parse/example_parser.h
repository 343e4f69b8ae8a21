// Parses tf.train.Example from the wire into columns, without an object in between.
//
// message Example { Features features = 1; }   message Features { map<string, Feature> feature = 1; }
// message Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
// (tensorflow/core/example/{example,feature}.proto; wire format: protobuf.dev/programming-guides/encoding)
//
// Where the format leaves room, this parser reads as protobuf's C++ parser does: the last of several equal keys or
// kinds counts, and lists in several runs are joined, whether packed or not. tests/golden/README.md says where
// TensorFlow differs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "flowgraph/parse/columns.h"
#include "flowgraph/parse/row_error.h"
#include "flowgraph/pipeline/spec.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {

/// Parses Examples into columns. Immutable; any number of threads may use one parser.
class ExampleParser {
 public:
  explicit ExampleParser(std::vector<FeatureSpec> features);
  ~ExampleParser();

  /// Returns the names of the features that an Example has, each once, in the order of the record. Too slow for the hot
  /// path.
  static std::vector<std::string> feature_names(const io::RecordView& record);

  /// Returns how many arena bytes the columns of `rows` rows can take at most, whatever the records contain.
  /// `payload_bytes` is the size of the payloads of all these records together.
  uint64_t arena_bound(uint64_t rows, uint64_t payload_bytes) const noexcept;

  /// Fills the columns of one chunk in blocks of records, in order. Only one thread may use a session at a time.
  class Session {
   public:
    /// Allocates the columns in the arena. The parser and the arena must outlive the session. The
    /// parser must outlive the columns, too, because columns refer to the default values in it.
    Session(const ExampleParser& parser, const ChunkRecords& records, Arena& arena);
    ~Session();
    Session(Session&&) noexcept;
    Session& operator=(Session&&) noexcept;

    /// Parses the next records, of which there may be at most as many as rows are left. A record that is refused is
    /// added to `errors` (rows ascending, at most one error for each row) and leaves its row of every column
    /// unspecified. Allocates memory only for errors, and to learn layouts that it has not seen before. The records'
    /// memory must stay valid as long as the columns are used. Nothing outside a record is read.
    void parse(std::span<const io::RecordView> records, std::vector<RowError>& errors);

    /// One column for each feature, in the order of the features.
    std::span<const Column> columns() const noexcept;
    /// Returns how many records had the byte layout of earlier records (record_layout.h), so that the fast way of
    /// parsing was enough.
    uint64_t layout_hits() const noexcept;
    /// Returns for each feature, by its number, whether any record so far had it, even if its values were refused.
    std::vector<bool> seen() const;
    /// Returns for each feature, by its number, in how many rows it was filled in because the record lacks it.
    std::span<const uint64_t> lacking() const noexcept;

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline::flow
