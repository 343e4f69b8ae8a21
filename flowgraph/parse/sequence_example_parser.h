// Parses tf.train.SequenceExample from the wire into columns, without an object in between.
//
// message SequenceExample { Features context = 1; FeatureLists feature_lists = 2; }
// (tensorflow/core/example/example.proto; feature_map.h has the messages in it)
//
// Where the format leaves room, this parser reads as protobuf's C++ parser does, as the Example parser does. A feature
// of the pipeline whose `where` is feature_list is looked for in the feature lists, every other one in the context.
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

/// Parses SequenceExamples into columns. ExampleParser documents the functions that both parsers have.
class SequenceExampleParser {
 public:
  explicit SequenceExampleParser(std::vector<FeatureSpec> features);
  ~SequenceExampleParser();

  /// Returns the names of the features that a SequenceExample has, each with context_prefix or feature_lists_prefix.
  static std::vector<std::string> feature_names(const io::RecordView& record);

  uint64_t arena_bound(uint64_t rows, uint64_t payload_bytes) const noexcept;

  class Session {
   public:
    Session(const SequenceExampleParser& parser, const ChunkRecords& records, Arena& arena);
    ~Session();
    Session(Session&&) noexcept;
    Session& operator=(Session&&) noexcept;

    void parse(std::span<const io::RecordView> records, std::vector<RowError>& errors);

    std::span<const Column> columns() const noexcept;
    /// Returns how many records had the keys and the headers of earlier records.
    uint64_t layout_hits() const noexcept;
    std::vector<bool> seen() const;
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
