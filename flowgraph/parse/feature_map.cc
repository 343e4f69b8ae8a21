#include "flowgraph/parse/feature_map.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "flowgraph/parse/wire.h"

namespace feedline::flow {
namespace {

constexpr uint32_t key_tag = wire::tag(1, wire::delimited);
constexpr uint32_t value_tag = wire::tag(2, wire::delimited);

/// How many levels of messages may still be opened inside a message of each kind.
constexpr int depth_in_map = wire::max_depth - 1;
constexpr int depth_in_entry = depth_in_map - 1;
constexpr int depth_in_value = depth_in_entry - 1;  // the value of an entry: a Feature or a FeatureList

/// Calls found(begin, end) for each field of a message that has the tag `wanted`, as long as the message is valid.
void for_each_field(const uint8_t* p, const uint8_t* end, uint32_t wanted, const auto& found) {
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
}

}  // namespace

FeatureMap::FeatureMap(const std::vector<FeatureSpec>& features, std::span<const FeatureTarget> targets, bool lists)
    : targets_(targets), keys_(features, lists) {
  for (size_t key = 0; key < keys_.size(); key++) {
    uint64_t key_bytes = 0;  // the maximum of arena bytes for one payload byte
    for (int32_t feature = keys_.last_feature(static_cast<int32_t>(key)); feature >= 0;
         feature = keys_.previous(static_cast<size_t>(feature)))
      key_bytes += targets_[static_cast<size_t>(feature)].arena_per_byte();
    arena_per_byte_ = std::max(arena_per_byte_, key_bytes);
    requested_.push_back(request(key));
  }
}

void FeatureMap::add_names(const io::RecordView& record, uint32_t field, const std::string& prefix,
                           std::vector<std::string>& names) {
  std::unordered_set<std::string> known;
  const auto* begin = reinterpret_cast<const uint8_t*>(record.data);
  for_each_field(begin, begin + record.size, wire::tag(field, wire::delimited), [&](auto* map, auto* map_end) {
    for_each_field(map, map_end, FeatureMapReader::entry_tag, [&](auto* entry, auto* entry_end) {
      std::string name;
      for_each_field(entry, entry_end, key_tag, [&](auto* key, auto* key_end) { name.assign(key, key_end); });
      if (known.insert(name).second) names.push_back(prefix + name);
    });
  });
}

/// Returns what is known beforehand about the entries with this key.
RequestedKey FeatureMap::request(size_t key) const {
  RequestedKey request;
  const auto feature = static_cast<size_t>(keys_.last_feature(static_cast<int32_t>(key)));
  if (keys_.previous(feature) >= 0) return request;
  const FeatureTarget& target = targets_[feature];
  request.steps = target.in_list;
  if (target.in_list) return request;
  request.kind = target.kind;
  if (target.kind == ListKind::bytes) request.payload = target.length;
  if (target.kind == ListKind::float32 && target.fixed) request.payload = target.elements * sizeof(float);
  return request;
}

FeatureMapReader::FeatureMapReader(const FeatureMap& map, FeatureValues& values)
    : map_(map), values_(values), layout_(direct_keys()) {}

/// Returns the requested keys, with the columns into which payloads can be stored without further checks. Sets
/// `direct_`.
std::vector<RequestedKey> FeatureMapReader::direct_keys() {
  std::vector<RequestedKey> keys = map_.requested_;
  // Sets the column of each key, unless its payloads must be checked further.
  // Bound may be farther: no test can notice, because a key without a column is parsed, too.
  for (size_t key = 0; key < keys.size(); key++) {
    const auto feature = static_cast<size_t>(map_.keys_.last_feature(static_cast<int32_t>(key)));
    const FeatureTarget& target = map_.targets_[feature];
    if (feature < 64 && target.fixed && !target.in_list && (target.elements == 1 || target.kind == ListKind::float32)) {
      keys[key].column = values_.columns()[feature].as<std::byte>();
      keys[key].row_size = target.row_size;
      keys[key].bit = uint64_t{1} << feature;
      direct_ |= keys[key].bit;
    }
  }
  return keys;
}

const uint8_t* FeatureMapReader::parse(const uint8_t* p, const uint8_t* end) {
  EntryShape* before = layout_.start();
  uint64_t stored = 0;
  while (p != end) {
    EntryShape* shape = before->next[0];
    uint32_t size;
    const uint8_t* payload = shape->match(p, end, size);
    bool done = payload != nullptr;
    if (done) [[likely]] {
      if (shape->use.action != EntryShape::Action::think) {
        done = shape->use.store(payload, size, row_);
      } else {
        values_.mark_good(std::exchange(stored, 0));  // now, because take() may clear these bits again
        done = take(shape->use, payload, size);
      }
    }
    if (done) [[likely]] {
      stored |= shape->use.bit;
      p = payload + size;
      before = shape;
    } else {
      values_.mark_good(std::exchange(stored, 0));
      p = parse_field(p, end, before);
      if (!p) return broken_at_;
    }
  }
  values_.mark_good(stored);
  return nullptr;
}

/// Parses a field of the map that is not the entry that was predicted first (`before->next[0]`). If the field is an
/// entry, `before` becomes the entry's shape. Returns the position after the field, or null after fail().
const uint8_t* FeatureMapReader::parse_field(const uint8_t* p, const uint8_t* end, EntryShape*& before) {
  uint32_t size;
  for (EntryShape* shape : before->next) {
    const uint8_t* payload = shape->match(p, end, size);
    if (!payload) payload = shape->match_long(p, end, size);
    if (payload && take(shape->use, payload, size)) {
      before = shape;
      return payload + size;
    }
  }
  predicted_ = false;
  const uint8_t* field = p;
  uint32_t tag;
  p = wire::read_tag(p, end, tag);
  if (!p) return fail(field), nullptr;
  if (tag != entry_tag) {
    p = wire::skip_field(tag, p, end, depth_in_map);
    return p ? p : (fail(field), nullptr);
  }
  p = wire::read_size(p, end, size);
  if (!p) return fail(field), nullptr;
  uint64_t key_hash;
  int32_t key;
  if (!parse_entry(p, p + size, key_hash, key)) return nullptr;
  before = layout_.learn(before, field, p + size, key_hash, key);
  return p + size;
}

/// Stores the payload of an entry of a known shape in the columns of its feature, if the pipeline wants it. Returns
/// false if the payload does not fit the feature's specification. Then the caller must parse the entry with
/// parse_entry(), which overwrites whatever take() has stored.
bool FeatureMapReader::take(const EntryShape::Use& use, const uint8_t* p, uint32_t size) {
  if (use.kind == Payload::unread) return true;
  const auto feature = static_cast<size_t>(map_.keys_.last_feature(use.key));
  return use.kind == Payload::steps ? values_.store_steps(feature, p, p + size, depth_in_value)
                                    : values_.store(feature, use.kind, p, size);
}

bool FeatureMapReader::parse_entry(const uint8_t* p, const uint8_t* end, uint64_t& key_hash, int32_t& key) {
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
    if (tag == key_tag) {
      p = wire::read_size(p, end, key_size);
      if (!p) return fail(field);
      key_at = p;
      p += key_size;
    } else if (tag == value_tag) {
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
  key = map_.keys_.find(key_at, key_size, key_hash);
  if (key < 0) return true;
  // Second pass, for each feature with this key: read the values.
  for (int32_t number = map_.keys_.last_feature(key); number >= 0;) {
    const auto feature = static_cast<size_t>(number);
    if (const uint8_t* const broken = add_entry(feature, begin, end, features)) {
      broken_feature_ = number;
      return fail(broken);
    }
    number = map_.keys_.previous(feature);
  }
  return true;
}

/// Reads the entry [p, end) for a feature. The entry has `values` values (Features or FeatureLists), which protobuf
/// merges into one. The fields around the values must be valid. Returns null, or the position at which protobuf would
/// refuse a value.
const uint8_t* FeatureMapReader::add_entry(size_t feature, const uint8_t* p, const uint8_t* end, uint32_t values) {
  const auto each_value = [&](const auto& read) -> const uint8_t* {
    const uint8_t* at = p;
    for (uint32_t left = values; left != 0;) {
      uint32_t tag;
      at = wire::read_tag(at, end, tag);
      if ((tag & 7) != wire::delimited) {
        at = wire::skip_field(tag, at, end, depth_in_entry);
        continue;
      }
      uint32_t size;
      at = wire::read_size(at, end, size);
      if (tag == value_tag) {
        left--;
        if (const uint8_t* const broken = read(at, at + size)) return broken;
      }
      at += size;
    }
    return nullptr;
  };
  const auto payload = static_cast<uint64_t>(end - p);
  const FeatureTarget& target = map_.targets_[feature];
  if (!target.in_list) {
    FoundValues found = values_.begin_values(feature, payload);
    const auto* const broken =
        each_value([&](auto* begin, auto* stop) { return add_feature(begin, stop, depth_in_value, found); });
    if (!broken) values_.end_values(feature, found);
    return broken;
  }
  uint64_t steps = 0;
  if (target.nested && !values_.has_rooms()) {
    const auto* const broken =
        each_value([&](auto* begin, auto* stop) { return count_steps(begin, stop, depth_in_value, steps); });
    if (broken) return broken;
  }
  FoundSteps found = values_.begin_steps(feature, payload, steps);
  const auto* const broken =
      each_value([&](auto* begin, auto* stop) { return add_steps(begin, stop, depth_in_value, found); });
  if (!broken) values_.end_steps(feature, found);
  return broken;
}

}  // namespace feedline::flow
