// tf.train.Example on the wire -> columns, without an object in between.
//
// message Example { Features features = 1; }   message Features { map<string, Feature> feature = 1; }
// message Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
// (tensorflow/core/example/{example,feature}.proto; wire format: protobuf.dev/programming-guides/encoding)
//
// Where the format leaves room, it reads as protobuf's C++ parser does: the last of several equal keys or kinds counts,
// lists in several runs are joined, packed or not. tests/golden/README.md says where TensorFlow differs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/parse/columns.h"
#include "flowgraph/pipeline/spec.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {

/// A record that was refused. `message` says what was found and what was wanted.
struct RowError {
  uint32_t row = 0;
  Category category = Category::malformed_proto;
  int feature = -1;  // number of the feature, or -1: the record as a whole
  std::string message;
};

/// The names of the features that an Example has, each once, in the order of the record. Not for the hot path.
std::vector<std::string> feature_names(const io::RecordView& record);

/// "; did you mean 'score'? There is: board score": for a message that says that `wanted` is not among these names. Of
/// many names it tells the nearest ones.
std::string names_instead(std::string_view wanted, std::vector<std::string> names);

/// Immutable; any number of threads may use one parser.
class ExampleParser {
 public:
  explicit ExampleParser(std::vector<FeatureSpec> features);
  ~ExampleParser();

  const std::vector<FeatureSpec>& features() const noexcept;

  /// Arena bytes that the columns of `rows` rows and records of together `payload_bytes` can take, whatever is in them.
  uint64_t arena_bound(uint64_t rows, uint64_t payload_bytes) const noexcept;

  /// The columns of one chunk, filled in blocks of records, in order. One thread at a time.
  class Session {
   public:
    /// Takes the columns for `rows` rows from the arena. The parser and the arena must outlive the session, the parser
    /// the columns too (default values lie in it).
    Session(const ExampleParser& parser, uint32_t rows, Arena& arena);
    ~Session();
    Session(Session&&) noexcept;
    Session& operator=(Session&&) noexcept;

    /// Parses the next records, at most as many as rows are left. A refused one is added to `errors` (rows ascending,
    /// at most one each) and leaves its row of every column unspecified. Otherwise no allocation. The records' memory
    /// must stay as long as the columns. Nothing outside a record is read.
    void parse(std::span<const io::RecordView> records, std::vector<RowError>& errors);

    /// One for each feature, in their order.
    std::span<const Column> columns() const noexcept { return columns_; }
    /// Records whose byte layout was that of records before them (record_layout.h): they took the short way.
    uint64_t layout_hits() const noexcept { return hits_; }
    /// By number of feature: whether a record so far had it, sound or not.
    std::vector<bool> seen() const;

   private:
    struct State;
    std::vector<Column> columns_;
    std::unique_ptr<State> state_;
    uint32_t row_ = 0;
    uint64_t hits_ = 0;
  };

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline::flow
