#include "flowgraph/parse/example_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "flowgraph/parse/feature_keys.h"
#include "flowgraph/parse/feature_values.h"
#include "flowgraph/parse/record_layout.h"
#include "flowgraph/parse/record_shape.h"
#include "flowgraph/parse/wire.h"

namespace feedline::flow {
namespace {

// The tag of Example.features, of an entry of Features.feature, and of an entry's key.
constexpr uint32_t first_field = wire::tag(1, wire::delimited);

/// How many levels of messages may still be opened inside a message of each kind.
constexpr int depth_in_example = wire::max_depth;
constexpr int depth_in_features = depth_in_example - 1;
constexpr int depth_in_entry = depth_in_features - 1;
constexpr int depth_in_feature = depth_in_entry - 1;

}  // namespace

std::vector<std::string> ExampleParser::feature_names(const io::RecordView& record) {
  std::vector<std::string> names;
  std::unordered_set<std::string> known;
  const auto each_field = [](const uint8_t* p, const uint8_t* end, uint32_t wanted, const auto& found) {
    while (p && p != end) {
      uint32_t tag, size;
      p = wire::read_tag(p, end, tag);
      if (!p) return;
      if (tag != wanted) {
        p = wire::skip_field(tag, p, end, wire::max_depth);
        continue;
      }
      p = wire::read_size(p, end, size);
      if (!p) return;
      found(p, p + size);
      p += size;
    }
  };
  const auto* begin = reinterpret_cast<const uint8_t*>(record.data);
  each_field(begin, begin + record.size, first_field, [&](const uint8_t* features, const uint8_t* features_end) {
    each_field(features, features_end, first_field, [&](const uint8_t* entry, const uint8_t* entry_end) {
      std::string name;
      each_field(entry, entry_end, first_field,
                 [&](const uint8_t* key, const uint8_t* key_end) { name.assign(key, key_end); });
      if (known.insert(name).second) names.push_back(std::move(name));
    });
  });
  return names;
}

struct ExampleParser::Impl {
  std::vector<FeatureSpec> features;
  std::vector<FeatureTarget> targets;
  FeatureKeys keys;
  std::vector<RequestedKey> requested;  // by the number of the key
  uint64_t arena_per_row = 0;
  uint64_t arena_per_byte = 0;

  explicit Impl(std::vector<FeatureSpec> specs)
      : features(std::move(specs)), targets(features.begin(), features.end()), keys(features) {
    for (size_t key = 0; key < keys.size(); key++) {
      uint64_t key_bytes = 0;  // arena bytes that one payload byte can take
      for (int32_t feature = keys.last_feature(static_cast<int32_t>(key)); feature >= 0;
           feature = keys.previous(static_cast<size_t>(feature)))
        key_bytes += targets[static_cast<size_t>(feature)].arena_per_byte();
      arena_per_byte = std::max(arena_per_byte, key_bytes);
      requested.push_back(request(key));
    }
    for (const FeatureTarget& target : targets) arena_per_row += target.row_size;
  }

  /// Returns what is known beforehand about the entries with this key.
  RequestedKey request(size_t key) const {
    RequestedKey request;
    const auto feature = static_cast<size_t>(keys.last_feature(static_cast<int32_t>(key)));
    if (keys.previous(feature) >= 0) return request;
    const FeatureTarget& target = targets[feature];
    request.kind = target.kind;
    if (target.kind == ListKind::bytes) request.payload = target.length;
    if (target.kind == ListKind::float32 && target.fixed) request.payload = target.elements * sizeof(float);
    return request;
  }
};

ExampleParser::ExampleParser(std::vector<FeatureSpec> features) : impl_(std::make_unique<Impl>(std::move(features))) {}
ExampleParser::~ExampleParser() = default;

// The bound holds for these reasons. A payload byte belongs to the values of at most one key. A value takes at least 1
// byte of payload for the 8 bytes of an int64, 2 for the 16 of a BytesRef, and 4 for the 4 of a float; features that
// share a key take memory of their own. The memory of the values of repeated entries is not given back, but each of
// these has its own payload. Aligning one list's values to 8 takes at most 4 bytes (after a list of floats). This is
// less than what the bound has to spare for the list's first value, if there are values of 8 bytes at all. A list is
// first taken as long as its bytes might allow and trimmed afterwards, so the bound holds in between, too.
uint64_t ExampleParser::arena_bound(uint64_t rows, uint64_t payload_bytes) const noexcept {
  return rows * impl_->arena_per_row + impl_->targets.size() * alignof(ValuesRef) +
         impl_->arena_per_byte * payload_bytes + alignof(ValuesRef);
}

struct ExampleParser::Session::State {
  State(const Impl& parser, uint32_t rows, Arena& arena)
      : impl(parser), values(parser.targets, feature_names, rows, arena), layout(direct_keys()) {}

  std::vector<RequestedKey> direct_keys();
  bool parse_example(const io::RecordView& record);
  const uint8_t* parse_features(const uint8_t* p, const uint8_t* end);
  const uint8_t* parse_features_field(const uint8_t* p, const uint8_t* end, EntryShape*& before);
  bool take(const EntryShape::Use& use, const uint8_t* p, uint32_t size);
  bool parse_entry(const uint8_t* p, const uint8_t* end, uint64_t& key_hash, int32_t& key);

  bool fail(const uint8_t* at) {
    broken_at = at;
    return false;
  }

  const Impl& impl;
  FeatureValues values;
  bool shaped = false;  // whether records can have a RecordShape: no feature needs Action::think
  RecordLayout layout;
  RecordShapes shapes;
  uint32_t row = 0;
  uint64_t hits = 0;
  bool predicted = true;
  const uint8_t* broken_at = nullptr;
  int32_t broken_feature = -1;
};

ExampleParser::Session::Session(const ExampleParser& parser, uint32_t rows, Arena& arena)
    : state_(std::make_unique<State>(*parser.impl_, rows, arena)) {}
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
    } else if (state.parse_example(record)) {
      if (state.values.end_row(record, errors)) {
        state.hits += state.predicted;
        if (state.predicted && state.shaped)
          state.shapes.learn(state.layout, begin, record.size, state.values.all_features());
      }
    } else {
      state.values.refuse_row();
      errors.push_back({state.row, Category::malformed_proto, state.broken_feature,
                        fmt::format("the record is not a tf.train.Example: at byte {} of {} there is no valid field of "
                                    "a protobuf message; if the records have another format, write record_type: RAW",
                                    state.broken_at - begin, record.size)});
    }
    state.row++;
  }
}

std::span<const Column> ExampleParser::Session::columns() const noexcept { return state_->values.columns(); }
uint64_t ExampleParser::Session::layout_hits() const noexcept { return state_->hits; }
std::vector<bool> ExampleParser::Session::seen() const { return state_->values.seen(state_->row); }

/// Returns the requested keys, with the columns into which payloads can be stored without further checks. Sets
/// `shaped`.
std::vector<RequestedKey> ExampleParser::Session::State::direct_keys() {
  std::vector<RequestedKey> keys = impl.requested;
  uint64_t direct = 0;
  for (size_t key = 0; key < keys.size(); key++) {
    const auto feature = static_cast<size_t>(impl.keys.last_feature(static_cast<int32_t>(key)));
    const FeatureTarget& target = impl.targets[feature];
    if (feature < 64 && target.fixed && (target.elements == 1 || target.kind == ListKind::float32)) {
      keys[key].column = values.columns()[feature].as<std::byte>();
      keys[key].row_size = target.row_size;
      keys[key].bit = uint64_t{1} << feature;
      direct |= keys[key].bit;
    }
  }
  shaped = values.few_features() && direct == values.all_features();
  return keys;
}

bool ExampleParser::Session::State::parse_example(const io::RecordView& record) {
  values.begin_row(row);
  predicted = true;
  broken_feature = -1;
  const auto* p = reinterpret_cast<const uint8_t*>(record.data);
  const uint8_t* end = p + record.size;
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return fail(field);
    if (tag == first_field) [[likely]] {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return fail(field);
      p = parse_features(p, p + size);
      if (!p) return false;
    } else {
      predicted = false;
      p = wire::skip_field(tag, p, end, depth_in_example);
      if (!p) return fail(field);
    }
  }
  return true;
}

const uint8_t* ExampleParser::Session::State::parse_features(const uint8_t* p, const uint8_t* end) {
  EntryShape* before = layout.start();
  uint64_t stored = 0;
  while (p != end) {
    EntryShape* shape = before->next[0];
    uint32_t size;
    const uint8_t* payload = shape->match(p, end, size);
    bool done = payload != nullptr;
    if (done) [[likely]] {
      if (shape->use.action != EntryShape::Action::think) {
        done = shape->use.store(payload, size, row);
      } else {
        values.mark_good(std::exchange(stored, 0));  // take() may clear bits that `stored` has set
        done = take(shape->use, payload, size);
      }
    }
    if (done) [[likely]] {
      stored |= shape->use.bit;
      p = payload + size;
      before = shape;
    } else {
      values.mark_good(std::exchange(stored, 0));
      p = parse_features_field(p, end, before);
      if (!p) return nullptr;
    }
  }
  values.mark_good(stored);
  return p;
}

/// Parses a field of Features that is not the entry predicted first. `before` becomes the entry's shape.
const uint8_t* ExampleParser::Session::State::parse_features_field(const uint8_t* p, const uint8_t* end,
                                                                   EntryShape*& before) {
  uint32_t size;
  for (EntryShape* shape : before->next) {
    const uint8_t* payload = shape->match(p, end, size);
    if (!payload) payload = shape->match_long(p, end, size);
    if (payload && take(shape->use, payload, size)) {
      before = shape;
      return payload + size;
    }
  }
  predicted = false;
  const uint8_t* field = p;
  uint32_t tag;
  p = wire::read_tag(p, end, tag);
  if (!p) return fail(field), nullptr;
  if (tag != first_field) {
    p = wire::skip_field(tag, p, end, depth_in_features);
    return p ? p : (fail(field), nullptr);
  }
  p = wire::read_size(p, end, size);
  if (!p) return fail(field), nullptr;
  uint64_t key_hash;
  int32_t key;
  if (!parse_entry(p, p + size, key_hash, key)) return nullptr;
  before = layout.learn(before, field, p + size, key_hash, key);
  return p + size;
}

/// Stores the payload of an entry of a known shape in the columns of its feature, if the pipeline wants it. Returns
/// false if the payload does not fit the feature's specification. Then the caller must parse the entry with
/// parse_entry(), which overwrites whatever take() has stored.
bool ExampleParser::Session::State::take(const EntryShape::Use& use, const uint8_t* p, uint32_t size) {
  if (use.kind == Payload::unread) return true;
  return values.store(static_cast<size_t>(impl.keys.last_feature(use.key)), use.kind, p, size);
}

bool ExampleParser::Session::State::parse_entry(const uint8_t* p, const uint8_t* end, uint64_t& key_hash,
                                                int32_t& key) {
  // First pass: find the key, which may come after the value, and check the fields around key and value. The last key
  // counts.
  const uint8_t* const begin = p;
  const uint8_t* key_at = p;
  uint32_t key_size = 0;
  uint32_t features = 0;
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return fail(field);
    if (tag == first_field) {
      p = wire::read_size(p, end, key_size);
      if (!p) return fail(field);
      key_at = p;
      p += key_size;
    } else if (tag == wire::tag(2, wire::delimited)) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return fail(field);
      p += size;
      features++;
    } else {
      p = wire::skip_field(tag, p, end, depth_in_entry);
      if (!p) return fail(field);
    }
  }
  key_hash = FeatureKeys::hash_of(key_at, key_size);
  key = impl.keys.find(key_at, key_size, key_hash);
  if (key < 0) return true;
  // Second pass, for each feature with this key: read the values; protobuf merges several into one. The fields around
  // them are valid, as the first pass has checked.
  for (int32_t number = impl.keys.last_feature(key); number >= 0;) {
    const size_t feature = static_cast<size_t>(number);
    FoundValues found = values.begin_values(feature, static_cast<uint64_t>(end - begin));
    p = begin;
    for (uint32_t left = features; left != 0;) {
      uint32_t tag;
      p = wire::read_tag(p, end, tag);
      if ((tag & 7) != wire::delimited) {
        p = wire::skip_field(tag, p, end, depth_in_entry);
        continue;
      }
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (tag == wire::tag(2, wire::delimited)) {
        left--;
        if (const uint8_t* broken = add_feature(p, p + size, depth_in_feature, found)) {
          broken_feature = number;
          return fail(broken);
        }
      }
      p += size;
    }
    values.end_values(feature, found);
    number = impl.keys.previous(feature);
  }
  return true;
}

}  // namespace feedline::flow
