// Compares the parsers of Examples, SequenceExamples and RAW records with libprotobuf, for any features and any records.
//
// The input describes the features, and then records that have these features, but for what it says; records that are
// damaged; or any bytes. The records come several times, because the parsers learn from one what the next looks like.
//
// covers: flowgraph/parse/absent_features.cc flowgraph/parse/example_parser.cc flowgraph/parse/feature_keys.cc
// covers: flowgraph/parse/feature_list.cc flowgraph/parse/feature_map.cc flowgraph/parse/feature_message.cc
// covers: flowgraph/parse/feature_values.cc flowgraph/parse/names_instead.cc flowgraph/parse/packed_varints.cc
// covers: flowgraph/parse/raw_parser.cc flowgraph/parse/record_layout.cc flowgraph/parse/record_parser.cc
// covers: flowgraph/parse/record_shape.cc flowgraph/parse/sequence_example_parser.cc flowgraph/parse/wire.cc
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "draw.h"
#include "flowgraph/parse/example_reference.h"
#include "flowgraph/parse/feature_values.h"
#include "record_writer.h"
#include "require.h"

namespace feedline::test {
namespace {

using flow::FeatureKind;
using flow::FeatureSpec;
using flow::RecordType;

FeatureSpec drawn_feature(Draw& draw, RecordType type) {
  FeatureSpec spec;
  spec.key = spec.name = drawn_key(draw);
  spec.dtype = draw.one_of({DType::bytes, DType::float32, DType::int64});
  spec.kind = static_cast<FeatureKind>(draw.below(4));
  if (type == RecordType::sequence_example) spec.where = draw.coin() ? flow::Where::context : flow::Where::feature_list;
  const bool may_lack = draw.coin();
  if (spec.dtype == DType::bytes && draw.coin()) {
    spec.length = drawn_size(draw);
    if (draw.coin()) spec.length_of = "output";
  }
  if (spec.kind == FeatureKind::fixed) {
    const int64_t count = drawn_size(draw);
    if (spec.in_list())
      spec.shape = Shape{std::max<int64_t>(1, count > 8 ? 2 : drawn_size(draw)), std::max<int64_t>(1, count)};
    else if (count != 1)
      spec.shape = Shape{count};
    spec.has_default = may_lack;
    const auto values = static_cast<size_t>(may_lack ? spec.shape.elements() : 0);
    const auto length = static_cast<size_t>(std::max<int64_t>(0, spec.length));
    if (spec.dtype == DType::bytes) spec.default_bytes.assign(values, std::string(length, 'd'));
    if (spec.dtype == DType::float32) spec.default_floats.assign(values, 0.5f);
    if (spec.dtype == DType::int64) spec.default_ints.assign(values, -1);
  } else {
    if (spec.kind == FeatureKind::fixed_sequence) spec.shape = Shape{drawn_size(draw)};
    if (draw.coin()) spec.max_values = draw.coin() ? int64_t{1} << 31 : std::max<int64_t>(1, drawn_size(draw));
    spec.required = !may_lack;
  }
  return spec;
}

/// Returns how many bytes of all columns a record takes.
size_t row_bytes_of(const std::vector<FeatureSpec>& features) {
  size_t bytes = 0;
  for (const FeatureSpec& spec : features) bytes += flow::row_bytes(spec);
  return bytes;
}

std::vector<FeatureSpec> drawn_features(Draw& draw, RecordType type) {
  std::vector<FeatureSpec> features;
  if (type == RecordType::raw) {
    FeatureSpec& record = features.emplace_back();
    record.name = record.key = "record";
    record.dtype = DType::bytes;
    if (draw.coin()) record.length = drawn_size(draw);
    return features;
  }
  const uint64_t different = 1 + draw.below(6);
  for (uint64_t i = 0; i < different; i++) features.push_back(drawn_feature(draw, type));
  if (draw.below(8) != 7 || row_bytes_of(features) > 1000) return features;
  // The parsers have a word of flags for each 64 features.
  for (const uint64_t count = draw.near(64) % 130; features.size() < count;) {
    FeatureSpec next = features[features.size() - different];
    next.key = next.name = std::to_string(features.size());
    features.push_back(std::move(next));
  }
  return features;
}

void damage(std::string& record, Draw& draw) {
  for (uint64_t n = 1 + draw.below(3); n != 0 && !record.empty(); n--) {
    const size_t at = draw.below(record.size());
    switch (draw.below(4)) {
      case 0:
        record[at] = draw.any<char>();
        break;
      case 1:
        record.insert(at, 1, draw.any<char>());
        break;
      case 2:
        record.erase(at, 1);
        break;
      default:
        record.resize(at);
    }
  }
}

std::vector<std::string> drawn_records(Draw& draw, const std::vector<FeatureSpec>& features, RecordType type) {
  constexpr size_t most_bytes = 40 << 10, most_records = 40;
  const size_t row_bytes = row_bytes_of(features);
  uint64_t times = 3 - draw.below(3);
  std::vector<std::string> recipes = {""}, records;
  for (size_t bytes = 0; !draw.empty() && records.size() < most_records && bytes < most_bytes;) {
    std::string record;
    switch (const uint64_t how = draw.below(8)) {
      case 0:  // any bytes
        record = draw.bytes(draw.any<uint16_t>());
        break;
      case 1:  // a record of before
      case 2:  // and damage to it
        if (!records.empty()) record = draw.one_of(std::span<const std::string>(records));
        if (how == 2) damage(record, draw);
        break;
      case 3: {  // a recipe of before, with a byte changed
        std::string recipe = draw.one_of(std::span<const std::string>(recipes)) + '\0';
        const size_t at = draw.below(recipe.size());
        recipe[at] = draw.any<char>();
        record = RecordWriter(features, recipe, records.size()).record(type);
        recipes.push_back(std::move(recipe));
        break;
      }
      default:
        recipes.emplace_back(draw.bytes(draw.below(256)));
        record = RecordWriter(features, recipes.back(), records.size()).record(type);
    }
    bytes += record.size() + row_bytes;
    records.push_back(std::move(record));
  }
  const std::vector<std::string> once = records;
  for (; times > 1; times--) records.insert(records.end(), once.begin(), once.end());
  return records;
}

}  // namespace
}  // namespace feedline::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace feedline;
  test::Draw draw(data, size);
  const auto type = draw.one_of({flow::RecordType::example, flow::RecordType::sequence_example, flow::RecordType::raw});
  const test::ArenaPlan plan{.more_rows = draw.below(4),
                             .more_payload_bytes = draw.below(256),
                             .other_payload_bytes = draw.below(256),
                             .kept_free = draw.below(256)};
  const std::vector<flow::FeatureSpec> features = test::drawn_features(draw, type);
  const std::vector<std::string> records = test::drawn_records(draw, features, type);
  const std::string difference = test::compare_with_protobuf(features, records, nullptr, type, plan);
  test::require(difference.empty(), difference);
  return 0;
}
