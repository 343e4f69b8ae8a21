#include "flowgraph/parse/example_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "flowgraph/parse/feature_map.h"
#include "flowgraph/parse/feature_values.h"
#include "flowgraph/parse/record_shape.h"
#include "flowgraph/parse/wire.h"

namespace feedline::flow {
namespace {

constexpr uint32_t features_field = 1;  // Example.features

}  // namespace

std::vector<std::string> ExampleParser::feature_names(const io::RecordView& record) {
  std::vector<std::string> names;
  FeatureMap::add_names(record, features_field, "", names);
  return names;
}

struct ExampleParser::Impl {
  std::vector<FeatureSpec> features;
  std::vector<FeatureTarget> targets;
  FeatureMap map;

  explicit Impl(std::vector<FeatureSpec> specs)
      : features(std::move(specs)), targets(features.begin(), features.end()), map(features, targets, false) {}
};

ExampleParser::ExampleParser(std::vector<FeatureSpec> features) : impl_(std::make_unique<Impl>(std::move(features))) {}
ExampleParser::~ExampleParser() = default;

uint64_t ExampleParser::arena_bound(uint64_t rows, uint64_t payload_bytes) const noexcept {
  return FeatureValues::arena_bound(impl_->targets, impl_->map.arena_per_byte(), rows, payload_bytes);
}

struct ExampleParser::Session::State {
  State(const Impl& parser, const ChunkRecords& records, Arena& arena)
      : values(parser.targets, feature_names, records, parser.map.arena_per_byte(), arena),
        map(parser.map, values),
        shaped(values.few_features() && map.direct() == values.all_features()) {}

  const uint8_t* parse_example(const io::RecordView& record);

  FeatureValues values;
  FeatureMapReader map;
  const bool shaped;  // whether records can have a RecordShape: no feature needs Action::think
  RecordShapes shapes;
  uint32_t row = 0;
  uint64_t hits = 0;
  bool predicted = true;  // the record has known fields only, and the map's entries were predicted
};

ExampleParser::Session::Session(const ExampleParser& parser, const ChunkRecords& records, Arena& arena)
    : state_(std::make_unique<State>(*parser.impl_, records, arena)) {}
ExampleParser::Session::~Session() = default;
ExampleParser::Session::Session(Session&&) noexcept = default;
ExampleParser::Session& ExampleParser::Session::operator=(Session&&) noexcept = default;

void ExampleParser::Session::parse(std::span<const io::RecordView> records, std::vector<RowError>& errors) {
  State& state = *state_;
  for (const io::RecordView& record : records) {
    const auto* const begin = reinterpret_cast<const uint8_t*>(record.data);
    const RecordShape* const shape = state.shaped ? state.shapes.of(begin, record.size) : nullptr;
    if (shape && shape->store(begin, state.row)) [[likely]] {
      state.hits++;
    } else if (const uint8_t* const broken = state.parse_example(record)) {
      state.values.refuse_row();
      errors.push_back({state.row, Category::malformed_proto, state.map.broken_feature(),
                        fmt::format("the record is not a tf.train.Example: at byte {} of {} there is no valid field of "
                                    "a protobuf message; if the records have another format, write record_type: RAW",
                                    broken - begin, record.size)});
    } else if (state.values.end_row(record, errors)) {
      state.hits += state.predicted;
      if (state.predicted && state.shaped)
        state.shapes.learn(state.map.layout(), begin, record.size, state.values.all_features());
    }
    state.row++;
  }
}

std::span<const Column> ExampleParser::Session::columns() const noexcept { return state_->values.columns(); }
uint64_t ExampleParser::Session::layout_hits() const noexcept { return state_->hits; }
std::span<const uint64_t> ExampleParser::Session::lacking() const noexcept { return state_->values.lacking(); }
std::vector<bool> ExampleParser::Session::seen() const { return state_->values.seen(state_->row); }

/// Returns null, or where protobuf would refuse the record.
const uint8_t* ExampleParser::Session::State::parse_example(const io::RecordView& record) {
  values.begin_row(row);
  map.begin_record(row);
  bool known;
  const uint8_t* const broken = FeatureMapReader::parse_record(record, known, [this](uint32_t tag) {
    return tag == wire::tag(features_field, wire::delimited) ? &map : nullptr;
  });
  if (broken) return broken;
  predicted = known && map.predicted();
  return nullptr;
}

}  // namespace feedline::flow
