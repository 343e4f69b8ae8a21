#include "flowgraph/parse/feature_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "flowgraph/parse/names_instead.h"
#include "flowgraph/parse/packed_varints.h"
#include "flowgraph/parse/wire.h"

namespace feedline::flow {
namespace {

constexpr uint32_t run_tag = wire::tag(1, wire::delimited);  // of a run of packed values, and of one bytes value
constexpr uint32_t single_int_tag = wire::tag(1, wire::varint);
constexpr uint32_t single_float_tag = wire::tag(1, wire::fixed32);

ListKind kind_of(DType dtype) {
  return dtype == DType::bytes ? ListKind::bytes : dtype == DType::float32 ? ListKind::float32 : ListKind::int64;
}

std::string_view name(ListKind kind) {
  constexpr std::array<std::string_view, 4> names = {"no", "BYTES", "FLOAT32", "INT64"};
  return names[static_cast<size_t>(kind)];
}

/// Returns the size in bytes of a value in a column or in the arena.
uint32_t value_size(ListKind kind) {
  return kind == ListKind::bytes ? sizeof(BytesRef) : kind == ListKind::float32 ? sizeof(float) : sizeof(int64_t);
}

// add_bytes(), add_floats() and add_ints() add the values of a list, as add_feature() adds those of a Feature.

const uint8_t* add_bytes(const uint8_t* p, const uint8_t* end, int depth, FoundValues& found) {
  const uint64_t capacity = found.wanted == ListKind::bytes ? found.capacity : 0;
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return field;
    if (tag == run_tag) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return field;
      if (found.count < capacity) {
        static_cast<BytesRef*>(found.values)[found.count] = {reinterpret_cast<const std::byte*>(p), size};
      }
      if (size != found.length && found.other_length == FeatureTarget::any_length) found.other_length = size;
      found.count++;
      p += size;
    } else {
      p = wire::skip_field(tag, p, end, depth);
      if (!p) return field;
    }
  }
  return nullptr;
}

const uint8_t* add_floats(const uint8_t* p, const uint8_t* end, int depth, FoundValues& found) {
  const uint64_t capacity = found.wanted == ListKind::float32 ? found.capacity : 0;
  const auto add = [&](const uint8_t* from, uint64_t count) {
    if (found.count + count <= capacity && count != 0) {
      std::memcpy(static_cast<float*>(found.values) + found.count, from, count * sizeof(float));
    }
    found.count += count;
  };
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return field;
    if (tag == run_tag) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p || size % sizeof(float) != 0) return field;
      add(p, size / sizeof(float));
      p += size;
    } else if (tag == single_float_tag) {
      if (end - p < 4) return field;
      add(p, 1);
      p += sizeof(float);
    } else {
      p = wire::skip_field(tag, p, end, depth);
      if (!p) return field;
    }
  }
  return nullptr;
}

const uint8_t* add_ints(const uint8_t* p, const uint8_t* end, int depth, FoundValues& found) {
  const uint64_t capacity = found.wanted == ListKind::int64 ? found.capacity : 0;
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return field;
    if (tag == run_tag) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return field;
      const uint8_t* after = p + size;
      const uint64_t left = capacity - std::min(capacity, found.count);
      uint64_t count = wire::decode_varints(p, after, static_cast<int64_t*>(found.values) + found.count, left);
      if (count == wire::unfit) {  // values that do not fit or are not wanted are checked all the same
        uint64_t ignored;
        for (count = 0; p != after; count++) {
          p = wire::read_varint(p, after, ignored);
          if (!p) return field;
        }
      }
      found.count += count;
      p = after;
    } else if (tag == single_int_tag) {
      uint64_t value;
      p = wire::read_varint(p, end, value);
      if (!p) return field;
      if (found.count < capacity) static_cast<int64_t*>(found.values)[found.count] = static_cast<int64_t>(value);
      found.count++;
    } else {
      p = wire::skip_field(tag, p, end, depth);
      if (!p) return field;
    }
  }
  return nullptr;
}

}  // namespace

FeatureTarget::FeatureTarget(const FeatureSpec& feature)
    : spec(&feature), kind(kind_of(feature.dtype)), fixed(feature.kind == FeatureKind::fixed) {
  const bool shaped = fixed || feature.kind == FeatureKind::fixed_sequence;
  elements = shaped ? static_cast<uint64_t>(feature.shape.elements()) : 1;
  row_size = static_cast<uint32_t>(fixed ? elements * value_size(kind) : sizeof(ValuesRef));
  max_values = static_cast<uint64_t>(feature.max_values);  // -1 (no limit) becomes the largest number
  length = static_cast<uint64_t>(feature.length);          // -1 becomes any_length
  if (!fixed && elements == 0) {                           // a step has no elements, so there can be no values
    elements = 1;
    max_values = 0;
  }
}

const uint8_t* add_feature(const uint8_t* p, const uint8_t* end, int depth, FoundValues& found) {
  while (p != end) {
    const uint8_t* field = p;
    uint32_t tag;
    p = wire::read_tag(p, end, tag);
    if (!p) return field;
    if (const uint32_t number = tag >> 3; (tag & 7) == wire::delimited && number >= 1 && number <= 3) {
      uint32_t size;
      p = wire::read_size(p, end, size);
      if (!p) return field;
      const ListKind kind = static_cast<ListKind>(number);
      if (found.found != kind) found.restart(kind);  // a oneof: another kind discards the values so far
      const uint8_t* after = p + size;
      const uint8_t* broken = kind == ListKind::bytes     ? add_bytes(p, after, depth - 1, found)
                              : kind == ListKind::float32 ? add_floats(p, after, depth - 1, found)
                                                          : add_ints(p, after, depth - 1, found);
      if (broken) return broken;
      p = after;
    } else {
      p = wire::skip_field(tag, p, end, depth);
      if (!p) return field;
    }
  }
  return nullptr;
}

FeatureValues::FeatureValues(std::span<const FeatureTarget> targets, FeatureNames feature_names, uint32_t rows,
                             Arena& arena)
    : targets_(targets),
      feature_names_(feature_names),
      arena_(arena),
      good_(targets.size() / 64 + 1),
      seen_(good_.size()),
      flaws_(targets.size()) {
  for (const FeatureTarget& target : targets) {
    const uint64_t eights = (uint64_t{rows} * target.row_size + 7) / 8;
    columns_.push_back({arena.take<uint64_t>(eights)});
  }
}

// The bound holds for these reasons. A payload byte belongs to the values of at most one key. A value takes at least 1
// byte of payload for the 8 bytes of an int64, 2 for the 16 of a BytesRef, and 4 for the 4 of a float; features that
// share a key take memory of their own. The memory of the values of repeated entries is not given back, but each of
// these has its own payload. Aligning one list's values to 8 takes at most 4 bytes (after a list of floats). This is
// less than what the bound has to spare for the list's first value, if there are values of 8 bytes at all. A list is
// first taken as long as its bytes might allow and trimmed afterwards, so the bound holds in between, too.
uint64_t FeatureValues::arena_bound(std::span<const FeatureTarget> targets, uint64_t per_byte, uint64_t rows,
                                    uint64_t payload_bytes) noexcept {
  uint64_t per_row = 0;
  for (const FeatureTarget& target : targets) per_row += target.row_size;
  return rows * per_row + targets.size() * alignof(ValuesRef) + per_byte * payload_bytes + alignof(ValuesRef);
}

std::vector<bool> FeatureValues::seen(uint32_t rows) const {
  std::vector<bool> all(targets_.size(), rows > lacking_rows_);
  for (size_t feature = 0; feature < all.size(); feature++)
    if ((seen_[feature / 64] >> feature % 64 & 1) != 0) all[feature] = true;
  return all;
}

bool FeatureValues::store(size_t feature, Payload payload, const uint8_t* p, uint32_t size) {
  const FeatureTarget& target = targets_[feature];
  if (payload == Payload::nothing) {
    clear_good(feature);
    flaws_[feature].row = ~uint32_t{0};
    return true;
  }
  uint64_t count = 1;
  uint64_t value;
  switch (target.kind) {
    case ListKind::bytes:
      if (target.length != FeatureTarget::any_length && size != target.length) return false;
      break;
    case ListKind::float32:
      if (size % sizeof(float) != 0) return false;
      count = size / sizeof(float);
      break;
    default:
      if (payload == Payload::varint && !wire::read_varint_before(p + size, size, value)) return false;
      count = size;  // there are at most this many values
      break;
  }
  void* values = target.fixed ? row_of<void>(feature) : reserve(target.kind, count);
  if (target.kind == ListKind::int64) {
    count = wire::decode_varints(p, p + size, static_cast<int64_t*>(values), target.fixed ? target.elements : count);
  }
  const bool fits = count != wire::unfit && (target.fixed ? count == target.elements
                                                          : count <= target.max_values && count % target.elements == 0);
  if (!target.fixed) arena_.trim(static_cast<std::byte*>(values) + (fits ? count * value_size(target.kind) : 0));
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

FoundValues FeatureValues::begin_values(size_t feature, uint64_t payload) {
  const FeatureTarget& target = targets_[feature];
  FoundValues found;
  found.wanted = target.kind;
  found.length = target.length;
  if (target.fixed) {
    found.values = row_of<void>(feature);
    found.capacity = target.elements;
    return found;
  }
  found.capacity = target.kind == ListKind::bytes     ? payload / 2
                   : target.kind == ListKind::float32 ? payload / 4
                                                      : payload;
  found.values = reserve(target.kind, found.capacity);
  return found;
}

void* FeatureValues::reserve(ListKind kind, uint64_t count) {
  return kind == ListKind::bytes     ? static_cast<void*>(arena_.take<BytesRef>(count))
         : kind == ListKind::float32 ? static_cast<void*>(arena_.take<float>(count))
                                     : static_cast<void*>(arena_.take<int64_t>(count));
}

void FeatureValues::end_values(size_t feature, const FoundValues& found) {
  const FeatureTarget& target = targets_[feature];
  const bool right_kind = found.found == found.wanted;
  if (!target.fixed) {
    const uint64_t kept = right_kind ? found.count : 0;
    arena_.trim(static_cast<std::byte*>(found.values) + kept * value_size(target.kind));
    *row_of<ValuesRef>(feature) = {found.values, kept};
  }
  const bool right_count = target.fixed ? found.count == target.elements
                                        : found.count <= target.max_values && found.count % target.elements == 0;
  const bool right_length =
      target.length == FeatureTarget::any_length || found.other_length == FeatureTarget::any_length;
  if (right_kind && right_count && right_length) {
    set_good(feature);
    return;
  }
  clear_good(feature);
  Flaw& flaw = flaws_[feature];
  flaw = {found.found == ListKind::unset ? ~uint32_t{0} : row_, found.found, found.count,
          right_length ? FeatureTarget::any_length : found.other_length, flaw.names_told};
  if (found.found != ListKind::unset) seen_[feature / 64] |= uint64_t{1} << feature % 64;
}

bool FeatureValues::fill_in(const io::RecordView& record, std::vector<RowError>& errors) {
  const size_t features = targets_.size();
  lacking_rows_++;
  for (size_t word = 0; word < good_.size(); word++) seen_[word] |= good_[word];
  for (size_t word = 0; word * 64 < features; word++) {
    const size_t here = std::min<size_t>(64, features - word * 64);
    uint64_t lacking = ~good_[word] & (~uint64_t{0} >> (64 - here));
    for (; lacking != 0; lacking &= lacking - 1) {
      const size_t feature = word * 64 + static_cast<size_t>(std::countr_zero(lacking));
      const FeatureTarget& target = targets_[feature];
      const FeatureSpec& spec = *target.spec;
      if (flaws_[feature].row == row_ || (target.fixed && !spec.has_default)) {
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

RowError FeatureValues::describe(size_t feature, const io::RecordView& record) {
  const FeatureTarget& target = targets_[feature];
  const FeatureSpec& spec = *target.spec;
  Flaw& flaw = flaws_[feature];
  RowError error{row_, Category::missing_feature, static_cast<int>(feature), {}};
  if (flaw.row != row_) {
    // List the names only once in a session: names are slow to compare, and many records may lack the same feature.
    const bool tell = !std::exchange(flaw.names_told, true);
    error.message = fmt::format(
        "the record does not have this feature{}. If records may lack it, give it a default_value, or "
        "kind: VARIABLE",
        tell ? names_instead(spec.key, feature_names_(record)) : "");
  } else if (flaw.found != target.kind) {
    error.category = Category::wrong_dtype;
    error.message =
        fmt::format("the record holds {0} values, dtype wants {1}; write dtype: {0} if all records hold {0}",
                    name(flaw.found), name(target.kind));
  } else if (target.fixed ? flaw.count != target.elements
                          : flaw.count > target.max_values || flaw.count % target.elements != 0) {
    error.category = Category::wrong_count;
    const std::string wanted =
        target.fixed
            ? fmt::format("shape {} wants {}; change shape, or write kind: VARIABLE without a shape if records differ",
                          to_string(spec.shape), target.elements)
        : flaw.count > target.max_values ? fmt::format("max_values allows {}; raise max_values", target.max_values)
                                         : fmt::format("steps of shape {} want a multiple of {}; change shape",
                                                       to_string(spec.shape), target.elements);
    error.message = fmt::format("the record holds {} values, {}", flaw.count, wanted);
  } else {
    error.category = Category::wrong_length;
    error.message = fmt::format(
        "the record holds a value of {} bytes, length wants {}; change length, or remove it if records differ",
        flaw.length, target.length);
  }
  return error;
}

}  // namespace feedline::flow
