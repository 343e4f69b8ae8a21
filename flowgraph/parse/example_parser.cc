// Parses tf.train.Example from the wire into columns, without an object in between.
//
// message Example { Features features = 1; }   message Features { map<string, Feature> feature = 1; }
// message Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
// (tensorflow/core/example/{example,feature}.proto; wire format: protobuf.dev/programming-guides/encoding)
//
// Where the format leaves room, this parser reads as protobuf's C++ parser does: the last of several equal keys or
// kinds counts, and lists in several runs are joined, whether packed or not. tests/golden/README.md says where
// TensorFlow differs.
#include <fmt/format.h>

#include <utility>

#include "flowgraph/parse/feature_map.h"
#include "flowgraph/parse/feature_values.h"
#include "flowgraph/parse/record_parser.h"
#include "flowgraph/parse/record_shape.h"
#include "flowgraph/parse/wire.h"

namespace feedline::flow {
namespace {

constexpr uint32_t features_field = 1;  // Example.features

std::vector<std::string> names_in_example(const io::RecordView& record) {
  std::vector<std::string> names;
  FeatureMap::add_names(record, features_field, "", names);
  return names;
}

class ExampleSession final : public RecordParser::Session {
 public:
  ExampleSession(std::span<const FeatureTarget> targets, const FeatureMap& map, const ChunkRecords& records,
                 Arena& arena)
      : values_(targets, names_in_example, records, map.arena_per_byte(), arena),
        map_(map, values_),
        shaped_(values_.few_features() && map_.direct() == values_.all_features()) {}

  void parse(std::span<const io::RecordView> records, std::vector<RowError>& errors) override {
    for (const io::RecordView& record : records) {
      const auto* const begin = reinterpret_cast<const uint8_t*>(record.data);
      const RecordShape* const shape = shaped_ ? shapes_.of(begin, record.size) : nullptr;
      if (shape && shape->store(begin, row_)) [[likely]] {
        hits_++;
      } else if (const uint8_t* const broken = parse_example(record)) {
        values_.refuse_row();
        errors.push_back(
            {row_, Category::malformed_proto, map_.broken_feature(),
             fmt::format("the record is not a tf.train.Example: at byte {} of {} the protobuf field is not valid; if "
                         "the records have a different format, write record_type: RAW",
                         broken - begin, record.size)});
      } else if (values_.end_row(record, errors)) {
        hits_ += predicted_;
        if (predicted_ && shaped_) shapes_.learn(map_.layout(), begin, record.size, values_.all_features());
      }
      row_++;
    }
  }
  void skip_row() noexcept override {
    values_.refuse_row();
    row_++;
  }
  std::span<const Column> columns() const noexcept override { return values_.columns(); }
  uint64_t layout_hits() const noexcept override { return hits_; }
  std::vector<bool> seen() const override { return values_.seen(row_); }
  std::span<const uint64_t> lacking() const noexcept override { return values_.lacking(); }

 private:
  // Returns null, or the position at which protobuf would refuse the record.
  const uint8_t* parse_example(const io::RecordView& record) {
    values_.begin_row(row_);
    map_.begin_record(row_);
    bool known;
    const uint8_t* const broken = FeatureMapReader::parse_record(record, known, [this](uint32_t tag) {
      return tag == wire::tag(features_field, wire::delimited) ? &map_ : nullptr;
    });
    if (broken) return broken;
    predicted_ = known && map_.predicted();
    return nullptr;
  }

  FeatureValues values_;
  FeatureMapReader map_;
  // True if whole records may be recognised by a RecordShape. For this, the values of every feature must be storable
  // without further checks (no feature needs Action::think).
  const bool shaped_;
  RecordShapes shapes_;
  uint32_t row_ = 0;
  uint64_t hits_ = 0;
  bool predicted_ = true;  // the record has known fields only, and the map's entries were predicted
};

class ExampleParser final : public RecordParser {
 public:
  explicit ExampleParser(std::vector<FeatureSpec> features)
      : features_(std::move(features)),
        targets_(features_.begin(), features_.end()),
        map_(features_, targets_, false) {}

  uint64_t arena_bound(uint64_t rows, uint64_t payload_bytes) const noexcept override {
    return FeatureValues::arena_bound(targets_, map_.arena_per_byte(), rows, payload_bytes);
  }
  std::vector<std::string> feature_names(const io::RecordView& record) const override {
    return names_in_example(record);
  }
  std::unique_ptr<Session> begin(const ChunkRecords& records, Arena& arena) const override {
    return std::make_unique<ExampleSession>(targets_, map_, records, arena);
  }

 private:
  const std::vector<FeatureSpec> features_;
  const std::vector<FeatureTarget> targets_;
  const FeatureMap map_;
};

}  // namespace

std::unique_ptr<const RecordParser> example_parser(std::vector<FeatureSpec> features) {
  return std::make_unique<ExampleParser>(std::move(features));
}

}  // namespace feedline::flow
