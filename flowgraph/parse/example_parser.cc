#include "flowgraph/parse/example_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/audit.h"
#include "base/did_you_mean.h"
#include "base/utf8.h"
#include "flowgraph/parse/packed_varints.h"
#include "flowgraph/parse/record_layout.h"
#include "flowgraph/parse/record_shape.h"
#include "flowgraph/parse/wire.h"

namespace feedline::flow {
namespace {

using wire::tag;

constexpr uint64_t any = ~uint64_t{0};

constexpr uint32_t run_tag = tag(1, wire::delimited);  // of a run of packed values, and of one bytes value
constexpr uint32_t single_int_tag = tag(1, wire::varint);
constexpr uint32_t single_float_tag = tag(1, wire::fixed32);

/// How many levels of messages may still be opened inside a message of each kind.
constexpr int depth_in_example = wire::max_depth;
constexpr int depth_in_features = depth_in_example - 1;
constexpr int depth_in_entry = depth_in_features - 1;
constexpr int depth_in_feature = depth_in_entry - 1;
constexpr int depth_in_list = depth_in_feature - 1;

/// Returns the hash of a key. Takes 8 bytes at a time and folds them by a multiplication with 2^64 / the golden ratio.
/// The hash is mixed at the end, so that keys which differ only in their last bytes differ in all bits of the hash.
uint64_t hash_bytes(const uint8_t* p, size_t size) noexcept {
  uint64_t hash = size;
  const auto add = [&](uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  };
  if (size >= 8) {
    for (size_t i = 0; i + 8 < size; i += 8) add(wire::load<uint64_t>(p + i));
    add(wire::load<uint64_t>(p + size - 8));
  } else if (size >= 4) {
    add(wire::load<uint32_t>(p) | uint64_t{wire::load<uint32_t>(p + size - 4)} << 32);
  } else if (size > 0) {
    add(p[0] | uint64_t{p[size / 2]} << 8 | uint64_t{p[size - 1]} << 16);
  }
  return mix64(hash);
}

const uint8_t* bytes_of(const std::string& text) { return reinterpret_cast<const uint8_t*>(text.data()); }

ListKind kind_of(DType dtype) {
  return dtype == DType::bytes ? ListKind::bytes : dtype == DType::float32 ? ListKind::float32 : ListKind::int64;
}

std::string_view name(ListKind kind) {
  constexpr std::array<std::string_view, 4> names = {"nothing", "bytes", "float32", "int64"};
  return names[static_cast<size_t>(kind)];
}

/// Returns the size in bytes of a value in a column or in the arena.
uint32_t value_size(ListKind kind) {
  return kind == ListKind::bytes ? sizeof(BytesRef) : kind == ListKind::float32 ? sizeof(float) : sizeof(int64_t);
}

/// What the parser must know of a FeatureSpec.
struct Target {
  ListKind kind;
  bool fixed;
  uint32_t row_size;  // bytes of one row of the column
  int32_t sibling;    // the previous feature with the same key, or -1
  uint64_t elements;  // fixed: values per row; fixed_sequence: values per step; otherwise 1
  uint64_t max_values;
  uint64_t length;  // bytes that every bytes value must have, or `any`
};

/// Collects the values of one feature as they are found in a record.
struct Sink {
  ListKind wanted = ListKind::unset;
  void* values = nullptr;
  uint64_t capacity = 0;
  uint64_t length = any;

  ListKind found = ListKind::unset;
  uint64_t count = 0;           // the number of values found, including those beyond `capacity`
  uint64_t other_length = any;  // bytes of the first value that is not `length` bytes long, or `any`

  void restart(ListKind kind) {
    found = kind;
    count = 0;
    other_length = any;
  }
};

/// Returns the key as a message shows it: at most its first 80 bytes, without control characters.
std::string shown(const std::string& key) {
  constexpr size_t longest = 80;
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (key.size() <= longest && is_utf8(key) && std::none_of(key.begin(), key.end(), is_control)) return key;
  std::string text;
  for (const char c : std::string_view(key).substr(0, longest))
    text += c >= 0x20 && c < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text + (key.size() > longest ? "..." : "");
}

}  // namespace

std::vector<std::string> feature_names(const io::RecordView& record) {
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
  each_field(begin, begin + record.size, run_tag, [&](const uint8_t* features, const uint8_t* features_end) {
    each_field(features, features_end, run_tag, [&](const uint8_t* entry, const uint8_t* entry_end) {
      std::string name;
      each_field(entry, entry_end, run_tag,
                 [&](const uint8_t* key, const uint8_t* key_end) { name.assign(key, key_end); });
      if (known.insert(name).second) names.push_back(std::move(name));
    });
  });
  return names;
}

std::string names_instead(std::string_view wanted, std::vector<std::string> names) {
  if (names.empty()) return "; there is none at all";
  constexpr size_t most = 10;
  for (std::string& name : names) name = shown(name);
  std::string text = did_you_mean(wanted, names);
  const size_t more = names.size() - std::min(names.size(), most);
  if (more > 0) {
    std::vector<std::pair<size_t, std::string>> by_distance;
    for (std::string& name : names) by_distance.emplace_back(edit_distance(shown(std::string(wanted)), name), name);
    std::sort(by_distance.begin(), by_distance.end());
    for (size_t i = 0; i < most; i++) names[i] = std::move(by_distance[i].second);
    names.resize(most);
  }
  text += text.empty() ? "; there is:" : " There is:";
  for (const std::string& name : names) text += ' ' + name;
  return more > 0 ? fmt::format("{} and {} more", text, more) : text;
}

struct ExampleParser::Impl {
  std::vector<FeatureSpec> features;
  std::vector<Target> targets;
  std::vector<RequestedKey> requested;  // by the number of the key
  // By the number of the key: the last feature with this key, which leads to its siblings.
  std::vector<int32_t> feature_of_key;
  struct Slot {
    uint64_t hash = 0;
    int32_t key = -1;
  };
  std::vector<Slot> slots;  // a hash table with open addressing, at most half full
  uint64_t arena_per_row = 0;
  uint64_t arena_per_byte = 0;

  explicit Impl(std::vector<FeatureSpec> specs) : features(std::move(specs)) {
    slots.resize(std::bit_ceil(2 * features.size() + 1));
    std::vector<uint64_t> key_bytes;  // by number of the key: arena bytes that one payload byte can take
    for (size_t i = 0; i < features.size(); i++) {
      const FeatureSpec& spec = features[i];
      Target target;
      target.kind = kind_of(spec.dtype);
      target.fixed = spec.kind == FeatureKind::fixed;
      const bool shaped = target.fixed || spec.kind == FeatureKind::fixed_sequence;
      target.elements = shaped ? static_cast<uint64_t>(spec.shape.elements()) : 1;
      target.row_size =
          static_cast<uint32_t>(target.fixed ? target.elements * value_size(target.kind) : sizeof(ValuesRef));
      target.max_values = static_cast<uint64_t>(spec.max_values);  // -1 (no limit) becomes the largest number
      target.length = static_cast<uint64_t>(spec.length);
      if (!target.fixed && target.elements == 0) {  // a step has no elements, so there can be no values
        target.elements = 1;
        target.max_values = 0;
      }
      Slot& slot = find(bytes_of(spec.key), spec.key.size(), hash_bytes(bytes_of(spec.key), spec.key.size()));
      if (slot.key < 0) {
        slot = {hash_bytes(bytes_of(spec.key), spec.key.size()), static_cast<int32_t>(feature_of_key.size())};
        feature_of_key.push_back(-1);
        requested.emplace_back();
        key_bytes.push_back(0);
      }
      const size_t key = static_cast<size_t>(slot.key);
      target.sibling = feature_of_key[key];
      feature_of_key[key] = static_cast<int32_t>(i);
      if (target.sibling < 0) {
        requested[key].kind = target.kind;
        if (target.kind == ListKind::bytes) requested[key].payload = target.length;
        if (target.kind == ListKind::float32 && target.fixed) requested[key].payload = target.elements * sizeof(float);
      } else {
        requested[key].kind = ListKind::unset;
      }
      if (!target.fixed) key_bytes[key] += target.kind == ListKind::float32 ? 1 : 8;
      arena_per_row += target.row_size;
      targets.push_back(target);
    }
    for (uint64_t bytes : key_bytes) arena_per_byte = std::max(arena_per_byte, bytes);
  }

  Slot& find(const uint8_t* key, size_t size, uint64_t hash) {
    for (size_t i = hash;; i++) {
      Slot& slot = slots[i & (slots.size() - 1)];
      if (slot.key < 0) return slot;
      if (slot.hash != hash) continue;
      const std::string& known = features[static_cast<size_t>(feature_of_key[static_cast<size_t>(slot.key)])].key;
      if (known.size() == size && (size == 0 || std::memcmp(known.data(), key, size) == 0)) return slot;
    }
  }
};

ExampleParser::ExampleParser(std::vector<FeatureSpec> features) : impl_(std::make_unique<Impl>(std::move(features))) {}
ExampleParser::~ExampleParser() = default;

const std::vector<FeatureSpec>& ExampleParser::features() const noexcept { return impl_->features; }

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
  /// What was wrong with a feature, the last time that anything was.
  struct Flaw {
    uint32_t row = ~uint32_t{0};
    ListKind found = ListKind::unset;
    uint64_t count = 0;
    uint64_t length = any;
    bool names_told = false;  // an error has listed the names of a record that lacks this feature
  };

  State(const Impl& parser, uint32_t rows, Arena& memory, std::vector<Column>& columns)
      : impl(parser),
        arena(memory),
        good(parser.targets.size() / 64 + 1),
        seen(good.size()),
        flaws(parser.targets.size()) {
    for (const Target& target : parser.targets) {
      const uint64_t words = (uint64_t{rows} * target.row_size + 7) / 8;
      columns.push_back({memory.take<uint64_t>(words)});
      column_data.push_back(columns.back().as<std::byte>());
    }
    std::vector<RequestedKey> keys = parser.requested;
    for (size_t key = 0; key < keys.size(); key++) {
      const size_t feature = static_cast<size_t>(parser.feature_of_key[key]);
      const Target& target = parser.targets[feature];
      if (feature < 64 && target.fixed && (target.elements == 1 || target.kind == ListKind::float32)) {
        keys[key].column = column_data[feature];
        keys[key].row_size = target.row_size;
        keys[key].bit = uint64_t{1} << feature;
      }
    }
    uint64_t direct = 0;
    for (const RequestedKey& key : keys) direct |= key.bit;
    shaped = few_features() && direct == all_features();
    layout.emplace(std::move(keys));
  }

  bool parse_example(const io::RecordView& record);
  const uint8_t* parse_features(const uint8_t* p, const uint8_t* end);
  const uint8_t* parse_features_field(const uint8_t* p, const uint8_t* end, EntryShape*& before);
  bool take(const EntryShape::Use& use, const uint8_t* p, uint32_t size);
  void* reserve(ListKind kind, uint64_t count);
  bool parse_entry(const uint8_t* p, const uint8_t* end, uint64_t& key_hash, int32_t& key);
  bool parse_feature(const uint8_t* p, const uint8_t* end, Sink& sink);
  bool parse_bytes(const uint8_t* p, const uint8_t* end, Sink& sink);
  bool parse_floats(const uint8_t* p, const uint8_t* end, Sink& sink);
  bool parse_ints(const uint8_t* p, const uint8_t* end, Sink& sink);
  bool complete(const io::RecordView& record, std::vector<RowError>& errors);
  bool fill_in(const io::RecordView& record, std::vector<RowError>& errors);
  RowError describe(size_t feature, const io::RecordView& record);

  template <typename T>
  T* row_of(size_t feature) const {
    return reinterpret_cast<T*>(column_data[feature] + uint64_t{row} * impl.targets[feature].row_size);
  }
  /// Whether one word of `good` has a bit for every feature.
  bool few_features() const { return good.size() == 1; }
  uint64_t all_features() const { return ~(~uint64_t{0} << impl.targets.size()); }
  void set_good(size_t feature) { good[feature / 64] |= uint64_t{1} << feature % 64; }
  void clear_good(size_t feature) { good[feature / 64] &= ~(uint64_t{1} << feature % 64); }

  Sink open(size_t feature, uint64_t payload);
  void settle(size_t feature, const Sink& sink);

  bool fail(const uint8_t* at) {
    broken_at = at;
    return false;
  }

  const Impl& impl;
  Arena& arena;
  std::vector<std::byte*> column_data;
  std::optional<RecordLayout> layout;
  RecordShapes shapes;
  bool shaped = false;         // whether records can have a RecordShape: no feature needs Action::think
  std::vector<uint64_t> good;  // bits: features that this record has, and that are as they should be
  std::vector<uint64_t> seen;  // bits: features of records that lacked another one, or had a flawed one
  // The number of rows whose record lacked a feature, had a flawed one, or was no Example. All other records had every
  // feature.
  uint32_t lacking_rows = 0;
  std::vector<Flaw> flaws;
  uint32_t row = 0;
  bool predicted = true;
  const uint8_t* broken_at = nullptr;
  int32_t broken_feature = -1;
};

ExampleParser::Session::Session(const ExampleParser& parser, uint32_t rows, Arena& arena)
    : state_(std::make_unique<State>(*parser.impl_, rows, arena, columns_)) {}
ExampleParser::Session::~Session() = default;
ExampleParser::Session::Session(Session&&) noexcept = default;
ExampleParser::Session& ExampleParser::Session::operator=(Session&&) noexcept = default;

void ExampleParser::Session::parse(std::span<const io::RecordView> records, std::vector<RowError>& errors) {
  State& state = *state_;
  for (const io::RecordView& record : records) {
    const auto* const begin = reinterpret_cast<const uint8_t*>(record.data);
    state.row = row_;
    const RecordShape* const shape = state.shaped ? state.shapes.of(begin, record.size) : nullptr;
    if (shape && shape->store(begin, row_)) [[likely]] {
      hits_++;
    } else if (state.parse_example(record)) {
      if (state.complete(record, errors)) {
        hits_ += state.predicted;
        if (state.predicted && state.shaped)
          state.shapes.learn(*state.layout, begin, record.size, state.all_features());
      }
    } else {
      state.lacking_rows++;
      errors.push_back({row_, Category::malformed_proto, state.broken_feature,
                        fmt::format("not a tf.train.Example: its bytes make no sense at byte {} of {}",
                                    state.broken_at - begin, record.size)});
    }
    row_++;
  }
}

std::vector<bool> ExampleParser::Session::seen() const {
  std::vector<bool> all(columns_.size(), row_ > state_->lacking_rows);
  for (size_t feature = 0; feature < all.size(); feature++)
    if ((state_->seen[feature / 64] >> feature % 64 & 1) != 0) all[feature] = true;
  return all;
}

bool ExampleParser::Session::State::parse_example(const io::RecordView& record) {
  for (uint64_t& word : good) word = 0;
  predicted = true;
  broken_feature = -1;
  const auto* p = reinterpret_cast<const uint8_t*>(record.data);
  const uint8_t* end = p + record.size;
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return fail(field);
    if (tag == wire::tag(1, wire::delimited)) [[likely]] {
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
  EntryShape* before = layout->start();
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
        good[0] |= std::exchange(stored, 0);  // take() may clear bits that `stored` has set
        done = take(shape->use, payload, size);
      }
    }
    if (done) [[likely]] {
      stored |= shape->use.bit;
      p = payload + size;
      before = shape;
    } else {
      good[0] |= std::exchange(stored, 0);
      p = parse_features_field(p, end, before);
      if (!p) return nullptr;
    }
  }
  good[0] |= stored;
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
  if (tag != wire::tag(1, wire::delimited)) {
    p = wire::skip_field(tag, p, end, depth_in_features);
    return p ? p : (fail(field), nullptr);
  }
  p = wire::read_size(p, end, size);
  if (!p) return fail(field), nullptr;
  uint64_t key_hash;
  int32_t key;
  if (!parse_entry(p, p + size, key_hash, key)) return nullptr;
  before = layout->learn(before, field, p + size, key_hash, key);
  return p + size;
}

/// Stores the payload of an entry of a known shape, whatever feature it belongs to. Returns false if the payload is not
/// as the pipeline wants it. Then nothing that counts has changed, and the caller must parse the entry in the general
/// way.
bool ExampleParser::Session::State::take(const EntryShape::Use& use, const uint8_t* p, uint32_t size) {
  using Payload = EntryShape::Payload;
  if (use.kind == Payload::value) return true;
  const size_t feature = static_cast<size_t>(impl.feature_of_key[static_cast<size_t>(use.key)]);
  const Target& target = impl.targets[feature];
  if (use.kind == Payload::nothing) {
    clear_good(feature);
    flaws[feature].row = ~uint32_t{0};
    return true;
  }
  uint64_t count = 1;
  uint64_t value;
  switch (target.kind) {
    case ListKind::bytes:
      if (target.length != any && size != target.length) return false;
      break;
    case ListKind::float32:
      if (size % sizeof(float) != 0) return false;
      count = size / sizeof(float);
      break;
    default:
      if (use.kind == Payload::varint && !wire::read_varint_before(p + size, size, value)) return false;
      count = size;  // there are at most this many values
      break;
  }
  void* values = target.fixed ? row_of<void>(feature) : reserve(target.kind, count);
  if (target.kind == ListKind::int64) {
    count = wire::decode_varints(p, p + size, static_cast<int64_t*>(values), target.fixed ? target.elements : count);
  }
  const bool fits = count != wire::unfit && (target.fixed ? count == target.elements
                                                          : count <= target.max_values && count % target.elements == 0);
  if (!target.fixed) arena.trim(static_cast<std::byte*>(values) + (fits ? count * value_size(target.kind) : 0));
  if (!fits) return false;
  if (target.kind == ListKind::bytes) {
    *static_cast<BytesRef*>(values) = {reinterpret_cast<const std::byte*>(p), size};
  } else if (target.kind == ListKind::float32) {
    std::memcpy(values, p, size);
  }
  if (!target.fixed) *row_of<ValuesRef>(feature) = {values, count};
  set_good(feature);
  return true;
}

bool ExampleParser::Session::State::parse_entry(const uint8_t* p, const uint8_t* end, uint64_t& key_hash,
                                                int32_t& key) {
  // Read the frame first, because the key may come after the value, and the last key counts.
  const uint8_t* const begin = p;
  const uint8_t* key_at = p;
  uint32_t key_size = 0;
  uint32_t values = 0;
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return fail(field);
    if (tag == wire::tag(1, wire::delimited)) {
      p = wire::read_size(p, end, key_size);
      if (!p) return fail(field);
      key_at = p;
      p += key_size;
    } else if (tag == wire::tag(2, wire::delimited)) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return fail(field);
      p += size;
      values++;
    } else {
      p = wire::skip_field(tag, p, end, depth_in_entry);
      if (!p) return fail(field);
    }
  }
  key_hash = hash_bytes(key_at, key_size);
  key = const_cast<Impl&>(impl).find(key_at, key_size, key_hash).key;
  if (key < 0) return true;
  // Then read the values, several of which are merged into one. The frame is already known to be sound.
  for (int32_t number = impl.feature_of_key[static_cast<size_t>(key)]; number >= 0;) {
    const size_t feature = static_cast<size_t>(number);
    Sink sink = open(feature, static_cast<uint64_t>(end - begin));
    p = begin;
    for (uint32_t left = values; left != 0;) {
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
        if (!parse_feature(p, p + size, sink)) {
          broken_feature = number;
          return false;
        }
      }
      p += size;
    }
    settle(feature, sink);
    number = impl.targets[feature].sibling;
  }
  return true;
}

bool ExampleParser::Session::State::parse_feature(const uint8_t* p, const uint8_t* end, Sink& sink) {
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return fail(field);
    if (const uint32_t number = tag >> 3; (tag & 7) == wire::delimited && number >= 1 && number <= 3) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return fail(field);
      const ListKind kind = static_cast<ListKind>(number);
      if (sink.found != kind) sink.restart(kind);  // a oneof: another kind discards the values so far
      const uint8_t* behind = p + size;
      const bool sound = kind == ListKind::bytes     ? parse_bytes(p, behind, sink)
                         : kind == ListKind::float32 ? parse_floats(p, behind, sink)
                                                     : parse_ints(p, behind, sink);
      if (!sound) return false;
      p = behind;
    } else {
      p = wire::skip_field(tag, p, end, depth_in_feature);
      if (!p) return fail(field);
    }
  }
  return true;
}

bool ExampleParser::Session::State::parse_bytes(const uint8_t* p, const uint8_t* end, Sink& sink) {
  const uint64_t capacity = sink.wanted == ListKind::bytes ? sink.capacity : 0;
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return fail(field);
    if (tag == run_tag) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return fail(field);
      if (sink.count < capacity) {
        static_cast<BytesRef*>(sink.values)[sink.count] = {reinterpret_cast<const std::byte*>(p), size};
      }
      if (size != sink.length && sink.other_length == any) sink.other_length = size;
      sink.count++;
      p += size;
    } else {
      p = wire::skip_field(tag, p, end, depth_in_list);
      if (!p) return fail(field);
    }
  }
  return true;
}

bool ExampleParser::Session::State::parse_floats(const uint8_t* p, const uint8_t* end, Sink& sink) {
  const uint64_t capacity = sink.wanted == ListKind::float32 ? sink.capacity : 0;
  const auto add = [&](const uint8_t* from, uint64_t count) {
    if (sink.count + count <= capacity && count != 0) {
      std::memcpy(static_cast<float*>(sink.values) + sink.count, from, count * sizeof(float));
    }
    sink.count += count;
  };
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return fail(field);
    if (tag == run_tag) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p || size % sizeof(float) != 0) return fail(field);
      add(p, size / sizeof(float));
      p += size;
    } else if (tag == single_float_tag) {
      if (end - p < 4) return fail(field);
      add(p, 1);
      p += sizeof(float);
    } else {
      p = wire::skip_field(tag, p, end, depth_in_list);
      if (!p) return fail(field);
    }
  }
  return true;
}

bool ExampleParser::Session::State::parse_ints(const uint8_t* p, const uint8_t* end, Sink& sink) {
  const uint64_t capacity = sink.wanted == ListKind::int64 ? sink.capacity : 0;
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return fail(field);
    if (tag == run_tag) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return fail(field);
      const uint8_t* behind = p + size;
      const uint64_t left = capacity - std::min(capacity, sink.count);
      uint64_t count = wire::decode_varints(p, behind, static_cast<int64_t*>(sink.values) + sink.count, left);
      if (count == wire::unfit) {  // values that do not fit or are not wanted are checked all the same
        uint64_t ignored;
        for (count = 0; p != behind; count++) {
          p = wire::read_varint(p, behind, ignored);
          if (!p) return fail(field);
        }
      }
      sink.count += count;
      p = behind;
    } else if (tag == single_int_tag) {
      uint64_t value;
      p = wire::read_varint(p, end, value);
      if (!p) return fail(field);
      if (sink.count < capacity) static_cast<int64_t*>(sink.values)[sink.count] = static_cast<int64_t>(value);
      sink.count++;
    } else {
      p = wire::skip_field(tag, p, end, depth_in_list);
      if (!p) return fail(field);
    }
  }
  return true;
}

/// Returns a sink for the feature's values. `payload` is the most bytes that all of them together can have.
Sink ExampleParser::Session::State::open(size_t feature, uint64_t payload) {
  const Target& target = impl.targets[feature];
  Sink sink;
  sink.wanted = target.kind;
  sink.length = target.length;
  if (target.fixed) {
    sink.values = row_of<void>(feature);
    sink.capacity = target.elements;
    return sink;
  }
  sink.capacity = target.kind == ListKind::bytes     ? payload / 2
                  : target.kind == ListKind::float32 ? payload / 4
                                                     : payload;
  sink.values = reserve(target.kind, sink.capacity);
  return sink;
}

void* ExampleParser::Session::State::reserve(ListKind kind, uint64_t count) {
  return kind == ListKind::bytes     ? static_cast<void*>(arena.take<BytesRef>(count))
         : kind == ListKind::float32 ? static_cast<void*>(arena.take<float>(count))
                                     : static_cast<void*>(arena.take<int64_t>(count));
}

void ExampleParser::Session::State::settle(size_t feature, const Sink& sink) {
  const Target& target = impl.targets[feature];
  const bool right_kind = sink.found == sink.wanted;
  if (!target.fixed) {
    const uint64_t kept = right_kind ? sink.count : 0;
    arena.trim(static_cast<std::byte*>(sink.values) + kept * value_size(target.kind));
    *row_of<ValuesRef>(feature) = {sink.values, kept};
  }
  const bool right_count = target.fixed ? sink.count == target.elements
                                        : sink.count <= target.max_values && sink.count % target.elements == 0;
  const bool right_length = target.length == any || sink.other_length == any;
  if (right_kind && right_count && right_length) {
    set_good(feature);
    return;
  }
  clear_good(feature);
  Flaw& flaw = flaws[feature];
  flaw = {sink.found == ListKind::unset ? ~uint32_t{0} : row, sink.found, sink.count,
          right_length ? any : sink.other_length, flaw.names_told};
  if (sink.found != ListKind::unset) seen[feature / 64] |= uint64_t{1} << feature % 64;
}

inline bool ExampleParser::Session::State::complete(const io::RecordView& record, std::vector<RowError>& errors) {
  if (few_features() && good[0] == all_features()) [[likely]]
    return true;
  return fill_in(record, errors);
}

/// Fills in defaults for the features that the record lacks. If a feature is missing that must not be, or is not as it
/// should be, adds an error and returns false.
bool ExampleParser::Session::State::fill_in(const io::RecordView& record, std::vector<RowError>& errors) {
  const size_t features = impl.targets.size();
  lacking_rows++;
  for (size_t word = 0; word < good.size(); word++) seen[word] |= good[word];
  for (size_t word = 0; word * 64 < features; word++) {
    const size_t here = std::min<size_t>(64, features - word * 64);
    uint64_t lacking = ~good[word] & (~uint64_t{0} >> (64 - here));
    for (; lacking != 0; lacking &= lacking - 1) {
      const size_t feature = word * 64 + static_cast<size_t>(std::countr_zero(lacking));
      const Target& target = impl.targets[feature];
      const FeatureSpec& spec = impl.features[feature];
      if (flaws[feature].row == row || (target.fixed && !spec.has_default)) {
        errors.push_back(describe(feature, record));
        return false;
      }
      if (!target.fixed) {
        *row_of<ValuesRef>(feature) = {nullptr, 0};
      } else if (target.kind == ListKind::float32) {
        std::copy(spec.default_floats.begin(), spec.default_floats.end(), row_of<float>(feature));
      } else if (target.kind == ListKind::int64) {
        std::copy(spec.default_ints.begin(), spec.default_ints.end(), row_of<int64_t>(feature));
      } else {
        BytesRef* out = row_of<BytesRef>(feature);
        for (const std::string& value : spec.default_bytes) {
          *out++ = {reinterpret_cast<const std::byte*>(value.data()), value.size()};
        }
      }
    }
  }
  return true;
}

RowError ExampleParser::Session::State::describe(size_t feature, const io::RecordView& record) {
  const Target& target = impl.targets[feature];
  const FeatureSpec& spec = impl.features[feature];
  Flaw& flaw = flaws[feature];
  RowError error{row, Category::missing_feature, static_cast<int>(feature), {}};
  if (flaw.row != row) {
    // List the names only once in a session: names are slow to compare, and many records may lack the same feature.
    const bool tell = !std::exchange(flaw.names_told, true);
    error.message =
        fmt::format("the record does not have it{}. If it may be missing, give it a default_value, or kind: VARIABLE",
                    tell ? names_instead(spec.key, feature_names(record)) : "");
  } else if (flaw.found != target.kind) {
    error.category = Category::wrong_dtype;
    error.message = fmt::format("the record holds {} values, {} are wanted", name(flaw.found), name(target.kind));
  } else if (target.fixed ? flaw.count != target.elements
                          : flaw.count > target.max_values || flaw.count % target.elements != 0) {
    error.category = Category::wrong_count;
    const std::string wanted = target.fixed ? fmt::format("shape {} wants {}", to_string(spec.shape), target.elements)
                               : flaw.count > target.max_values
                                   ? fmt::format("max_values allows {}", target.max_values)
                                   : fmt::format("a step of shape {} has {}", to_string(spec.shape), target.elements);
    error.message = fmt::format("the record holds {} values, {}", flaw.count, wanted);
  } else {
    error.category = Category::wrong_length;
    error.message = fmt::format("the record holds a value of {} bytes, length wants {}", flaw.length, target.length);
  }
  return error;
}

}  // namespace feedline::flow
