#include "flowgraph/parse/sequence_example_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "flowgraph/parse/feature_map.h"
#include "flowgraph/parse/feature_values.h"
#include "flowgraph/parse/wire.h"

namespace feedline::flow {
namespace {

// The fields of a SequenceExample.
constexpr uint32_t context_field = 1, feature_lists_field = 2;

}  // namespace

std::vector<std::string> SequenceExampleParser::feature_names(const io::RecordView& record) {
  std::vector<std::string> names;
  FeatureMap::add_names(record, context_field, std::string(context_prefix), names);
  FeatureMap::add_names(record, feature_lists_field, std::string(feature_lists_prefix), names);
  return names;
}

struct SequenceExampleParser::Impl {
  std::vector<FeatureSpec> features;
  std::vector<FeatureTarget> targets;
  FeatureMap context, lists;

  explicit Impl(std::vector<FeatureSpec> specs)
      : features(std::move(specs)),
        targets(features.begin(), features.end()),
        context(features, targets, false),
        lists(features, targets, true) {}
  uint64_t arena_per_byte() const noexcept { return std::max(context.arena_per_byte(), lists.arena_per_byte()); }
};

SequenceExampleParser::SequenceExampleParser(std::vector<FeatureSpec> features)
    : impl_(std::make_unique<Impl>(std::move(features))) {}
SequenceExampleParser::~SequenceExampleParser() = default;

uint64_t SequenceExampleParser::arena_bound(uint64_t rows, uint64_t payload_bytes) const noexcept {
  return FeatureValues::arena_bound(impl_->targets, impl_->arena_per_byte(), rows, payload_bytes);
}

struct SequenceExampleParser::Session::State {
  State(const Impl& parser, const ChunkRecords& records, Arena& arena)
      : values(parser.targets, feature_names, records, parser.arena_per_byte(), arena),
        context(parser.context, values),
        lists(parser.lists, values) {}

  const uint8_t* parse_record(const io::RecordView& record);

  FeatureValues values;
  FeatureMapReader context, lists;
  uint32_t row = 0;
  uint64_t hits = 0;
  bool predicted = true;  // the record has known fields only, and the entries of both maps were predicted
};

SequenceExampleParser::Session::Session(const SequenceExampleParser& parser, const ChunkRecords& records, Arena& arena)
    : state_(std::make_unique<State>(*parser.impl_, records, arena)) {}
SequenceExampleParser::Session::~Session() = default;
SequenceExampleParser::Session::Session(Session&&) noexcept = default;
SequenceExampleParser::Session& SequenceExampleParser::Session::operator=(Session&&) noexcept = default;

void SequenceExampleParser::Session::parse(std::span<const io::RecordView> records, std::vector<RowError>& errors) {
  State& state = *state_;
  for (const io::RecordView& record : records) {
    if (const uint8_t* const broken = state.parse_record(record)) {
      state.values.refuse_row();
      errors.push_back({state.row, Category::malformed_proto,
                        std::max(state.context.broken_feature(), state.lists.broken_feature()),
                        fmt::format("the record is not a tf.train.SequenceExample: at byte {} of {} there is no valid "
                                    "field of a protobuf message; if the records have another format, write "
                                    "record_type: EXAMPLE or RAW",
                                    broken - reinterpret_cast<const uint8_t*>(record.data), record.size)});
    } else if (state.values.end_row(record, errors)) {
      state.hits += state.predicted;
    }
    state.row++;
  }
}

std::span<const Column> SequenceExampleParser::Session::columns() const noexcept { return state_->values.columns(); }
uint64_t SequenceExampleParser::Session::layout_hits() const noexcept { return state_->hits; }
std::span<const uint64_t> SequenceExampleParser::Session::lacking() const noexcept { return state_->values.lacking(); }
std::vector<bool> SequenceExampleParser::Session::seen() const { return state_->values.seen(state_->row); }

/// Returns null, or where protobuf would refuse the record.
const uint8_t* SequenceExampleParser::Session::State::parse_record(const io::RecordView& record) {
  values.begin_row(row);
  context.begin_record(row);
  lists.begin_record(row);
  bool known;
  const uint8_t* const broken = FeatureMapReader::parse_record(record, known, [this](uint32_t tag) {
    return tag == wire::tag(context_field, wire::delimited)         ? &context
           : tag == wire::tag(feature_lists_field, wire::delimited) ? &lists
                                                                    : nullptr;
  });
  if (broken) return broken;
  predicted = known && context.predicted() && lists.predicted();
  return nullptr;
}

}  // namespace feedline::flow
