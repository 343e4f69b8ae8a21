#include "flowgraph/parse/feature_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/mul_div.h"
#include "flowgraph/parse/names_instead.h"
#include "flowgraph/parse/other_length.h"
#include "flowgraph/parse/packed_varints.h"
#include "flowgraph/parse/wire.h"

namespace feedline::flow {
namespace {

ListKind kind_of(DType dtype) {
  return dtype == DType::bytes ? ListKind::bytes : dtype == DType::float32 ? ListKind::float32 : ListKind::int64;
}

std::string_view name(ListKind kind) {
  constexpr std::array<std::string_view, 4> names = {"no", "BYTES", "FLOAT32", "INT64"};
  return names[static_cast<size_t>(kind)];
}

/// Returns how many values `payload` bytes can hold.
uint64_t most_values(ListKind kind, uint64_t payload) {
  return kind == ListKind::bytes ? payload / 2 : kind == ListKind::float32 ? payload / sizeof(float) : payload;
}

}  // namespace

uint32_t row_bytes(const FeatureSpec& feature) {
  if (feature.nested()) return sizeof(StepsRef);
  if (feature.kind != FeatureKind::fixed) return sizeof(ValuesRef);
  return static_cast<uint32_t>(static_cast<uint64_t>(feature.shape.elements()) * value_size(kind_of(feature.dtype)));
}

FeatureTarget::FeatureTarget(const FeatureSpec& feature)
    : spec(&feature),
      kind(kind_of(feature.dtype)),
      fixed(feature.kind == FeatureKind::fixed),
      in_list(feature.in_list()),
      nested(feature.nested()) {
  const bool shaped = fixed || feature.kind == FeatureKind::fixed_sequence;
  if (shaped) elements = static_cast<uint64_t>(feature.shape.elements());
  step_values = nested ? any_count : fixed && in_list ? elements / static_cast<uint64_t>(feature.shape[0]) : elements;
  row_size = row_bytes(feature);
  max_values = static_cast<uint64_t>(feature.max_values);  // -1 (no limit) becomes the largest number
  length = static_cast<uint64_t>(feature.length);          // -1 becomes any_length
  if (!fixed && elements == 0) {                           // a step has no elements, so there can be no values
    elements = 1;
    max_values = 0;
  }
}

uint64_t FeatureTarget::ends_bytes() const noexcept {
  return nested ? round_up(max_values * sizeof(uint32_t), alignof(BytesRef)) : 0;
}

uint64_t FeatureTarget::list_bytes() const noexcept {
  return fixed ? 0 : ends_bytes() + round_up(max_values * value_size(kind), alignof(BytesRef));
}

FeatureValues::FeatureValues(std::span<const FeatureTarget> targets, FeatureNames feature_names,
                             const ChunkRecords& records, uint64_t per_byte, Arena& arena)
    : targets_(targets),
      feature_names_(feature_names),
      arena_(arena),
      good_(targets.size() / 64 + 1),
      seen_(good_.size()),
      lacking_(targets.size()),
      flaws_(targets.size()) {
  for (const FeatureTarget& target : targets) {
    const uint64_t eights = (uint64_t{records.rows} * target.row_size + 7) / 8;
    columns_.push_back({arena.take<uint64_t>(eights)});
  }
  // The arena may have been planned for more records than this chunk has. A room is the memory that a list needs at
  // most. If the arena was planned with rooms, the rooms of this chunk fit. If it was planned with only the memory that
  // the payloads need, the rooms may not fit.
  const auto rooms = room_bytes(targets, records.rows);
  // Rooms are used if they need less memory than the payloads may need.
  // Bound may be equal, farther, always: no test can notice, because rooms may be used whenever they fit.
  const bool is_less = rooms && *rooms < per_byte * records.payload_bytes;
  // Rooms are used only if the arena has space for them, besides the bytes that must be kept free.
  // Bound may be equal: no test can notice, because lists that have no rooms take what their payloads need.
  has_rooms_ = is_less && *rooms + records.kept_free <= arena.left();
  if (has_rooms_) rooms_.resize(targets.size());
}

// The bound holds for these reasons. A payload byte belongs to the values of at most one key. An int64, which takes 8
// bytes of memory, has at least 1 byte of payload; a BytesRef (16 bytes) has at least 2, and a float (4 bytes) has 4.
// Features that share a key take memory of their own each. The memory of the values of repeated entries is not given
// back, but each of these entries has its own payload. Aligning one list's values to 8 takes at most 4 bytes (after a
// list of floats). This is less than what the bound has to spare for the list's first value, if there are values of 8
// bytes at all. A list is first taken as long as its bytes might allow and trimmed afterwards, so the bound holds in
// between, too. The ends of steps take 4 bytes for each step; the step's tag and length, which are 2 bytes that belong
// to no value, pay for them.
//
// If rooms for max_values values of each list of each row take less than that, each list of a row gets such a room
// once. Then the values of a list that exceed its room are counted but not stored.
uint64_t FeatureValues::arena_bound(std::span<const FeatureTarget> targets, uint64_t per_byte, uint64_t rows,
                                    uint64_t payload_bytes) noexcept {
  uint64_t per_row = 0;
  for (const FeatureTarget& target : targets) per_row += target.row_size;
  const uint64_t for_lists =
      std::min(per_byte * payload_bytes, room_bytes(targets, rows).value_or(per_byte * payload_bytes));
  return rows * per_row + targets.size() * alignof(ValuesRef) + for_lists + alignof(ValuesRef);
}

// Returns how many bytes the rooms of all lists take; nullopt if a feature is not bounded(), or if 64 bits cannot hold
// the number.
std::optional<uint64_t> FeatureValues::room_bytes(std::span<const FeatureTarget> targets, uint64_t rows) noexcept {
  uint64_t per_row = 0, bytes = 0;
  for (const FeatureTarget& target : targets)
    if (!target.bounded() || __builtin_add_overflow(per_row, target.list_bytes(), &per_row)) return std::nullopt;
  return __builtin_mul_overflow(per_row, rows, &bytes) ? std::nullopt : std::optional(bytes);
}

std::vector<bool> FeatureValues::seen(uint32_t rows) const {
  std::vector<bool> all(targets_.size(), rows > lacking_rows_);
  // Reads the bit of each feature.
  // Bound may be equal: no test can notice, because seen_ has one more bit, which nobody sets.
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
      if (target.length != any_length && size != target.length) return false;
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
  void* values = target.fixed ? row_of<void>(feature) : has_rooms_ ? room_of(feature) : reserve(target.kind, count);
  if (target.kind == ListKind::int64) {
    const uint64_t most = target.fixed ? target.elements : has_rooms_ ? target.max_values : count;
    count = wire::decode_varints(p, p + size, static_cast<int64_t*>(values), most);
  }
  // The values are stored here only if their number is right.
  const bool fits = count != wire::unfit &&
                    (target.fixed ? count == target.elements
                                  // Bound may be equal, never: begin_values() takes the values that are refused here.
                                  : count <= target.max_values && count % target.elements == 0);
  if (!target.fixed) trim(static_cast<std::byte*>(values) + (fits ? count * value_size(target.kind) : 0));
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
  found.capacity = has_rooms_ ? target.max_values : most_values(target.kind, payload);
  found.values = has_rooms_ ? room_of(feature) : reserve(target.kind, found.capacity);
  return found;
}

// Returns the room of a feature's list in the current row. The ends of steps come first in it.
std::byte* FeatureValues::room_of(size_t feature) {
  Room& room = rooms_[feature];
  if (room.row != row_) {
    const uint64_t bytes = targets_[feature].list_bytes();
    room = {row_, reinterpret_cast<std::byte*>(arena_.take<uint64_t>(bytes / sizeof(uint64_t)))};
  }
  return room.begin;
}

// Gives back the part that begins at `end` of what reserve() has taken.
void FeatureValues::trim(void* end) noexcept {
  if (!has_rooms_) arena_.trim(end);
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
    const uint64_t kept = right_kind ? std::min(found.count, found.capacity) : 0;
    trim(static_cast<std::byte*>(found.values) + kept * value_size(target.kind));
    *row_of<ValuesRef>(feature) = {found.values, kept};
  }
  const bool right_count = target.fixed ? found.count == target.elements
                                        : found.count <= target.max_values && found.count % target.elements == 0;
  const bool right_length = target.length == any_length || found.other_length == any_length;
  if (right_kind && right_count && right_length) {
    set_good(feature);
    return;
  }
  clear_good(feature);
  Flaw& flaw = flaws_[feature];
  flaw = {found.found == ListKind::unset ? ~uint32_t{0} : row_,
          found.found,
          found.count,
          right_length ? any_length : found.other_length,
          0,
          {},
          flaw.names_told};
  if (found.found != ListKind::unset) seen_[feature / 64] |= uint64_t{1} << feature % 64;
}

bool FeatureValues::store_steps(size_t feature, const uint8_t* p, const uint8_t* end, int depth) {
  uint64_t steps = 0;
  if (targets_[feature].nested && !has_rooms_ && count_steps(p, end, depth, steps)) return false;
  FoundSteps found = begin_steps(feature, static_cast<uint64_t>(end - p), steps);
  if (add_steps(p, end, depth, found)) {
    if (!targets_[feature].fixed) trim(found.ends ? found.ends : found.values);
    return false;
  }
  end_steps(feature, found);
  return true;
}

FoundSteps FeatureValues::begin_steps(size_t feature, uint64_t payload, uint64_t steps) {
  const FeatureTarget& target = targets_[feature];
  FoundSteps found(target.kind, target.step_values, target.length);
  if (target.fixed) {
    found.values = row_of<void>(feature);
    found.capacity = target.elements;
    return found;
  }
  if (has_rooms_) {
    std::byte* const room = room_of(feature);
    if (target.nested) {
      found.ends = reinterpret_cast<uint32_t*>(room);
      found.most_steps = target.max_values;
    }
    found.capacity = target.max_values;
    found.values = room + target.ends_bytes();
    return found;
  }
  if (target.nested) {
    found.ends = arena_.take<uint32_t>(steps);
    found.most_steps = steps;
  }
  found.capacity = most_values(target.kind, payload - 2 * steps);
  found.values = reserve(target.kind, found.capacity);
  return found;
}

void FeatureValues::end_steps(size_t feature, const FoundSteps& found) {
  const FeatureTarget& target = targets_[feature];
  const ValuesRef all = {found.values, found.wrong ? 0 : std::min(found.count, found.capacity)};
  if (!target.fixed) {
    trim(static_cast<std::byte*>(found.values) + all.count * value_size(target.kind));
    if (target.nested)
      *row_of<StepsRef>(feature) = {all, found.ends, std::min(found.steps, found.most_steps)};
    else
      *row_of<ValuesRef>(feature) = all;
  }
  if (!found.wrong && (target.fixed ? found.count == target.elements
                                    : std::max(found.count, target.nested ? found.steps : 0) <= target.max_values)) {
    set_good(feature);
    return;
  }
  clear_good(feature);
  seen_[feature / 64] |= uint64_t{1} << feature % 64;
  Flaw& flaw = flaws_[feature];
  flaw = {row_, target.kind, found.count, any_length, found.steps, {}, flaw.names_told};
  if (!found.wrong) return;
  flaw.step = found.wrong->number;
  flaw.count = found.wrong->count;
  flaw.length = found.wrong->other_length;
  if (found.wrong->found != ListKind::unset) flaw.found = found.wrong->found;
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
      if (flaws_[feature].row == row_ || !spec.may_lack()) {
        errors.push_back(describe(feature, record));
        return false;
      }
      if (!target.fixed) {
        std::memset(row_of<void>(feature), 0, target.row_size);  // no values, and no steps
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
  // Counts the features that the record lacks. This comes last, because only now is it certain that the record is not
  // refused.
  for (size_t word = 0; word * 64 < features; word++) {
    const size_t here = std::min<size_t>(64, features - word * 64);
    for (uint64_t lacking = ~good_[word] & (~uint64_t{0} >> (64 - here)); lacking != 0; lacking &= lacking - 1)
      lacking_[word * 64 + static_cast<size_t>(std::countr_zero(lacking))]++;
  }
  return true;
}

RowError FeatureValues::describe(size_t feature, const io::RecordView& record) {
  const FeatureTarget& target = targets_[feature];
  const FeatureSpec& spec = *target.spec;
  Flaw& flaw = flaws_[feature];
  RowError error{row_, Category::missing_feature, static_cast<int>(feature), {}};
  const std::string holder = flaw.step ? fmt::format("step {} of the record", *flaw.step) : "the record";
  if (flaw.row != row_) {
    // List the names only once in a session: names are slow to compare, and many records may lack the same feature.
    const bool tell = !std::exchange(flaw.names_told, true);
    error.message =
        fmt::format("the record does not have this feature{}{}. If records may lack the feature, {}",
                    spec.key == spec.name ? "" : fmt::format(", whose key is '{}'", spec.key),
                    tell ? names_instead(spec, feature_names_(record)) : "",
                    spec.required ? "remove 'required'" : "give the feature a default_value, or write kind: VARIABLE");
  } else if (flaw.found != target.kind) {
    error.category = Category::wrong_dtype;
    error.message = fmt::format("{0} holds {1} values, but 'dtype' is {2}; write dtype: {1} if all records hold {1}",
                                holder, name(flaw.found), name(target.kind));
  } else if (flaw.step      ? !target.nested && flaw.count != target.step_values
             : target.fixed ? flaw.count != target.elements
                            : target.in_list || flaw.count > target.max_values || flaw.count % target.elements != 0) {
    error.category = Category::wrong_count;
    error.message = describe_count(target, flaw);
  } else {
    error.category = Category::wrong_length;
    error.message = other_length(holder + " holds a value of", flaw.length, spec);
  }
  return error;
}

std::string FeatureValues::describe_count(const FeatureTarget& target, const Flaw& flaw) {
  const Shape& shape = target.spec->shape;
  if (flaw.step)
    return fmt::format(
        "step {} of the record holds {} values, but shape {} needs {} in each step; change 'shape', or write kind: "
        "RAGGED without a shape if the number of values differs between steps",
        *flaw.step, flaw.count, to_string(shape), target.step_values);
  if (target.in_list && target.fixed)
    return fmt::format(
        "the record has {} steps, but shape {} needs {} steps; change 'shape', or write kind: FIXED_SEQUENCE with the "
        "shape of one step if the number of steps differs between records",
        flaw.steps, to_string(shape), shape[0]);
  if (target.nested)
    return fmt::format(
        "the record has {} steps with {} values in all, but max_values is {}, and neither number may exceed it; raise "
        "max_values",
        flaw.steps, flaw.count, target.max_values);
  const std::string wanted =
      target.fixed ? fmt::format(
                         "shape {} needs {} values; change 'shape', or write kind: VARIABLE without a shape if the "
                         "number of values differs between records",
                         to_string(shape), target.elements)
      : flaw.count > target.max_values
          ? fmt::format("max_values allows at most {}; raise max_values", target.max_values)
          : fmt::format("steps of shape {} need a multiple of {}; change 'shape'", to_string(shape), target.elements);
  return fmt::format("the record holds {} values, but {}", flaw.count, wanted);
}

}  // namespace feedline::flow
