// Parses tf.train.SequenceExample from the wire into columns, without an object in between.
//
// message SequenceExample { Features context = 1; FeatureLists feature_lists = 2; }
// (tensorflow/core/example/example.proto; feature_map.h has the messages in it)
//
// Where the format leaves room, this parser reads as protobuf's C++ parser does, like the Example parser
// (example_parser.cc).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "flowgraph/parse/feature_map.h"
#include "flowgraph/parse/feature_values.h"
#include "flowgraph/parse/record_parser.h"
#include "flowgraph/parse/wire.h"

namespace feedline::flow {
namespace {

// The fields of a SequenceExample.
constexpr uint32_t context_field = 1, feature_lists_field = 2;

// Returns the names of the record's features, each with context_prefix or feature_lists_prefix.
std::vector<std::string> names_in_sequence_example(const io::RecordView& record) {
  std::vector<std::string> names;
  FeatureMap::add_names(record, context_field, std::string(context_prefix), names);
  FeatureMap::add_names(record, feature_lists_field, std::string(feature_lists_prefix), names);
  return names;
}

class SequenceExampleSession final : public RecordParser::Session {
 public:
  SequenceExampleSession(std::span<const FeatureTarget> targets, const FeatureMap& context, const FeatureMap& lists,
                         uint64_t arena_per_byte, const ChunkRecords& records, Arena& arena)
      : values_(targets, names_in_sequence_example, records, arena_per_byte, arena),
        context_(context, values_),
        lists_(lists, values_) {}

  void parse(std::span<const io::RecordView> records, std::vector<RowError>& errors) override {
    for (const io::RecordView& record : records) {
      if (const uint8_t* const broken = parse_sequence_example(record)) {
        values_.refuse_row();
        errors.push_back(
            {row_, Category::malformed_proto, std::max(context_.broken_feature(), lists_.broken_feature()),
             fmt::format("the record is not a tf.train.SequenceExample: at byte {} of {} the protobuf field is not "
                         "valid; if the records have a different format, write record_type: EXAMPLE or RAW",
                         broken - reinterpret_cast<const uint8_t*>(record.data), record.size)});
      } else if (values_.end_row(record, errors)) {
        hits_ += predicted_;
      }
      row_++;
    }
  }
  void skip_row() noexcept override {
    values_.refuse_row();
    row_++;
  }
  std::span<const Column> columns() const noexcept override { return values_.columns(); }
  // Counts the records that had the keys and the headers of earlier records.
  uint64_t layout_hits() const noexcept override { return hits_; }
  std::vector<bool> seen() const override { return values_.seen(row_); }
  std::span<const uint64_t> lacking() const noexcept override { return values_.lacking(); }

 private:
  // Returns null, or the position at which protobuf would refuse the record.
  const uint8_t* parse_sequence_example(const io::RecordView& record) {
    values_.begin_row(row_);
    context_.begin_record(row_);
    lists_.begin_record(row_);
    bool known;
    const uint8_t* const broken = FeatureMapReader::parse_record(record, known, [this](uint32_t tag) {
      return tag == wire::tag(context_field, wire::delimited)         ? &context_
             : tag == wire::tag(feature_lists_field, wire::delimited) ? &lists_
                                                                      : nullptr;
    });
    if (broken) return broken;
    predicted_ = known && context_.predicted() && lists_.predicted();
    return nullptr;
  }

  FeatureValues values_;
  FeatureMapReader context_, lists_;
  uint32_t row_ = 0;
  uint64_t hits_ = 0;
  bool predicted_ = true;  // the record has known fields only, and the entries of both maps were predicted
};

class SequenceExampleParser final : public RecordParser {
 public:
  explicit SequenceExampleParser(std::vector<FeatureSpec> features)
      : features_(std::move(features)),
        targets_(features_.begin(), features_.end()),
        context_(features_, targets_, false),
        lists_(features_, targets_, true) {}

  uint64_t arena_bound(uint64_t rows, uint64_t payload_bytes) const noexcept override {
    return FeatureValues::arena_bound(targets_, arena_per_byte(), rows, payload_bytes);
  }
  std::vector<std::string> feature_names(const io::RecordView& record) const override {
    return names_in_sequence_example(record);
  }
  std::unique_ptr<Session> begin(const ChunkRecords& records, Arena& arena) const override {
    return std::make_unique<SequenceExampleSession>(targets_, context_, lists_, arena_per_byte(), records, arena);
  }

 private:
  uint64_t arena_per_byte() const noexcept { return std::max(context_.arena_per_byte(), lists_.arena_per_byte()); }

  const std::vector<FeatureSpec> features_;
  const std::vector<FeatureTarget> targets_;
  const FeatureMap context_, lists_;
};

}  // namespace

std::unique_ptr<const RecordParser> sequence_example_parser(std::vector<FeatureSpec> features) {
  return std::make_unique<SequenceExampleParser>(std::move(features));
}

}  // namespace feedline::flow
