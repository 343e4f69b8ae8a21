#include "tool/common/example_view.h"

#include <algorithm>
#include <array>

#include "flowgraph/parse/wire.h"

namespace feedline::tool {
namespace {

namespace wire = flow::wire;

/// Reads the fields of a message one after another. `level` says how many messages deep the message lies in the record.
/// Each take_...() function, and skip(), returns false if protobuf would refuse the message; its output argument is
/// then undefined.
class Fields {
 public:
  Fields(std::string_view message, int level)
      : next_(reinterpret_cast<const uint8_t*>(message.data())), end_(next_ + message.size()), level_(level) {}

  bool at_end() const { return next_ == end_; }
  bool take_tag(uint32_t& tag) { return moved(wire::read_tag(next_, end_, tag)) && tag >> 3 != 0; }
  bool take_varint(uint64_t& value) { return moved(wire::read_varint(next_, end_, value)); }
  bool take_bytes(std::string_view& bytes) {
    uint32_t size = 0;
    if (!moved(wire::read_size(next_, end_, size))) return false;
    bytes = {reinterpret_cast<const char*>(next_), size};
    next_ += size;
    return true;
  }
  bool take_float(float& value) {
    if (end_ - next_ < 4) return false;
    value = load<float>(next_);
    next_ += 4;
    return true;
  }
  /// Skips the value of an unknown field, whose tag was taken before.
  bool skip(uint32_t tag) { return moved(wire::skip_field(tag, next_, end_, wire::max_depth - level_)); }

 private:
  /// Continues at `next`, which is the end of the parsed bytes, or null if these bytes were invalid. Returns whether
  /// they were valid.
  bool moved(const uint8_t* next) {
    if (next) next_ = next;
    return next != nullptr;
  }

  const uint8_t* next_;
  const uint8_t* end_;
  int level_;
};

/// The level of each message: how many messages deep it lies in the record.
enum Level { in_record, in_features, in_entry, in_feature, in_steps = in_feature, in_step };

/// Calls on_field(tag, fields) for each field. on_field takes the rest of the field from `fields`, and returns whether
/// the field was valid.
template <typename OnField>
bool for_each_field(std::string_view message, int level, OnField&& on_field) {
  Fields fields(message, level);
  while (!fields.at_end()) {
    uint32_t tag = 0;
    if (!fields.take_tag(tag) || !on_field(tag, fields)) return false;
  }
  return true;
}

constexpr uint32_t message_field(uint32_t number) { return wire::tag(number, wire::delimited); }

/// Sorts the entries by key. Of entries with equal keys, keeps only the last one in the record, as protobuf does. The
/// address of a key tells which entry is later, because keys lie in the record in the order of their entries.
template <typename Entry>
void sort_by_key(std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    const int order = a.key.compare(b.key);
    return order != 0 ? order < 0 : a.key.data() > b.key.data();
  });
  const auto same = [](const Entry& a, const Entry& b) { return a.key == b.key; };
  entries.erase(std::unique(entries.begin(), entries.end(), same), entries.end());
}

}  // namespace

std::string_view name(Kind kind) noexcept {
  constexpr std::array names = {"unset", "bytes_list", "float_list", "int64_list"};
  return names[static_cast<size_t>(kind)];
}

std::string_view name(MessageType type) noexcept {
  constexpr std::array names = {"Example", "SequenceExample", "other"};
  return names[static_cast<size_t>(type)];
}

bool ExampleView::parse(std::span<const std::byte> record) {
  features_.clear();
  steps_.clear();
  lists_.clear();
  bytes_.clear();
  floats_.clear();
  ints_.clear();
  regular_ = irregular_ = 0;
  const std::string_view message(reinterpret_cast<const char*>(record.data()), record.size());
  const bool parsed = for_each_field(message, in_record, [&](uint32_t tag, Fields& fields) {
    std::string_view bytes;
    if (tag == message_field(1)) return fields.take_bytes(bytes) && parse_features(bytes);
    if (tag != message_field(2)) return skip(fields, tag);
    const size_t lists = lists_.size();
    if (!fields.take_bytes(bytes)) return false;
    // If field 2 does not parse as FeatureLists, the record is an Example in which field 2 is unknown.
    if (!parse_feature_lists(bytes)) {
      lists_.resize(lists);
      irregular_++;
    }
    return true;
  });
  sort_by_key(features_);
  sort_by_key(lists_);
  return parsed;
}

template <typename Fields>
bool ExampleView::skip(Fields& fields, uint32_t tag) {
  irregular_++;
  return fields.skip(tag);
}

bool ExampleView::parse_features(std::string_view message) {
  return for_each_field(message, in_features, [&](uint32_t tag, Fields& fields) {
    if (tag != message_field(1)) return skip(fields, tag);
    std::string_view entry;
    Feature feature;
    const auto parse_value = [&](std::string_view value) { return parse_feature(value, in_feature, feature); };
    if (!fields.take_bytes(entry) || !parse_entry(entry, feature.key, parse_value)) return false;
    features_.push_back(feature);
    return true;
  });
}

bool ExampleView::parse_feature_lists(std::string_view message) {
  return for_each_field(message, in_features, [&](uint32_t tag, Fields& fields) {
    if (tag != message_field(1)) return skip(fields, tag);
    std::string_view entry;
    FeatureList list{.key = {}, .first = steps_.size()};
    const auto parse_steps = [&](std::string_view value) {
      return for_each_field(value, in_steps, [&](uint32_t step_tag, Fields& steps) {
        if (step_tag != message_field(1)) return skip(steps, step_tag);
        std::string_view step;
        Feature feature;
        if (!steps.take_bytes(step) || !parse_feature(step, in_step, feature)) return false;
        steps_.push_back(feature);
        return true;
      });
    };
    if (!fields.take_bytes(entry) || !parse_entry(entry, list.key, parse_steps)) return false;
    list.count = steps_.size() - list.first;
    lists_.push_back(list);
    return true;
  });
}

template <typename ParseValue>
bool ExampleView::parse_entry(std::string_view entry, std::string_view& key, ParseValue&& parse_value) {
  int keys = 0, values = 0, unknown = 0;
  key = entry.substr(0, 0);
  const bool sound = for_each_field(entry, in_entry, [&](uint32_t tag, Fields& fields) {
    std::string_view value;
    if (tag == message_field(1)) {
      keys++;
      return fields.take_bytes(key);
    }
    if (tag == message_field(2)) {
      values++;
      return fields.take_bytes(value) && parse_value(value);
    }
    unknown++;
    return fields.skip(tag);
  });
  (keys == 1 && values == 1 && unknown == 0 ? regular_ : irregular_)++;
  return sound;
}

bool ExampleView::parse_feature(std::string_view message, int level, Feature& feature) {
  return for_each_field(message, level, [&](uint32_t tag, Fields& fields) {
    if (tag != message_field(1) && tag != message_field(2) && tag != message_field(3)) return skip(fields, tag);
    const auto kind = static_cast<Kind>(tag >> 3);
    const auto end = [&] {
      return kind == Kind::bytes_list ? bytes_.size() : kind == Kind::float_list ? floats_.size() : ints_.size();
    };
    if (feature.kind != kind) feature = {.key = feature.key, .kind = kind, .first = end(), .count = 0};
    std::string_view list;
    const bool sound =
        fields.take_bytes(list) && for_each_field(list, level + 1, [&](uint32_t value_tag, Fields& values) {
          return parse_values(kind, value_tag, values);
        });
    feature.count = end() - feature.first;
    return sound;
  });
}

/// Parses a field of a BytesList, FloatList or Int64List: one value or, if the field is packed, several values. Appends
/// the values to bytes_, floats_ or ints_.
template <typename Fields>
bool ExampleView::parse_values(Kind kind, uint32_t tag, Fields& fields) {
  const auto take_float = [&](auto& from) { return from.take_float(floats_.emplace_back()); };
  const auto take_int = [&](auto& from) {
    uint64_t value = 0;
    const bool sound = from.take_varint(value);
    ints_.push_back(static_cast<int64_t>(value));
    return sound;
  };
  if (kind == Kind::bytes_list)
    return tag == message_field(1) ? fields.take_bytes(bytes_.emplace_back()) : skip(fields, tag);
  if (kind == Kind::float_list && tag == wire::tag(1, wire::fixed32)) return take_float(fields);
  if (kind == Kind::int64_list && tag == wire::tag(1, wire::varint)) return take_int(fields);
  if (tag != message_field(1)) return skip(fields, tag);
  std::string_view run;
  if (!fields.take_bytes(run)) return false;
  for (Fields packed(run, 0); !packed.at_end();) {
    if (!(kind == Kind::float_list ? take_float(packed) : take_int(packed))) return false;
  }
  return true;
}

void MessageTypeGuess::add(const ExampleView& message, bool parsed) {
  records_++;
  if (!parsed) {
    unparsed_++;
    return;
  }
  regular_ += message.regular_;
  irregular_ += message.irregular_;
  lists_ += message.lists_.size();
}

void MessageTypeGuess::add(const MessageTypeGuess& other) {
  records_ += other.records_;
  unparsed_ += other.unparsed_;
  regular_ += other.regular_;
  irregular_ += other.irregular_;
  lists_ += other.lists_;
}

MessageType MessageTypeGuess::type() const {
  if (records_ == 0 || 2 * unparsed_ >= records_ || irregular_ > regular_) return MessageType::other;
  return lists_ > 0 ? MessageType::sequence_example : MessageType::example;
}

}  // namespace feedline::tool
