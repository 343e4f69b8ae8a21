// The inputs of the fuzz target of unpacking: specs and rows. And the definition in unpack/unpack_spec.h, computed one
// element after another in long double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/audit.h"
#include "draw.h"
#include "tests/unpack/slow_cast.h"
#include "unpack/unpack_spec.h"

namespace feedline::test {

inline DType draw_number(Draw& draw) { return static_cast<DType>(2 + draw.below(dtype_count - 2)); }

inline std::vector<float> draw_values(Draw& draw, int64_t channels) {
  constexpr float special[] = {1, -1, 0, -0.0f, 0.5f, 1e-38f, 3e38f, 1.0f / 255, 65504, INFINITY, NAN};
  const int64_t counts[] = {0, 1, channels};
  std::vector<float> values(static_cast<size_t>(draw.one_of(counts)));
  for (float& value : values) value = draw.coin() ? draw.one_of(special) : draw.any<float>();
  return values;
}

/// Draws the strides: dense, with the axes in another order, with gaps, or any.
inline void draw_strides(Draw& draw, int64_t unit, int64_t element, unpack::UnpackSpec& spec) {
  const size_t rank = spec.shape.rank();
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  if (draw.coin())
    for (size_t i = rank; i > 1; i--) std::swap(order[i - 1], order[draw.below(i)]);
  const bool any = draw.below(4) == 3, gaps = draw.below(4) == 3, mirrored = draw.below(4) == 3;
  spec.stride_bits.resize(rank);
  for (size_t i = rank; i-- > 0;) {
    int64_t& stride = spec.stride_bits[order[i]];
    stride = any ? unit * (static_cast<int64_t>(draw.below(60)) - 20) : element;
    if (gaps) stride += unit * static_cast<int64_t>(draw.below(16));
    element = stride * std::max<int64_t>(1, spec.shape[order[i]]);
    if (mirrored && draw.coin()) stride = -stride;
  }
}

/// Draws a spec of rows of at most so many elements. It makes sense, except that fields may begin before the row.
inline unpack::UnpackSpec draw_spec(Draw& draw, size_t most_elements) {
  constexpr int64_t lengths[] = {1, 2, 3, 4, 8, 16, 24, 32, 64, 128, 512, 1024};
  unpack::UnpackSpec spec;
  spec.out = draw_number(draw);
  if (draw.coin()) spec.stored = draw.coin() ? spec.out : draw_number(draw);
  spec.big_endian = draw.below(4) == 3;
  spec.width = draw.coin() ? 1 : 1 + static_cast<int>(draw.below(32));
  spec.sign_extend = draw.coin();
  spec.lsb_first = draw.coin();
  const bool is_field = spec.stored == DType::unset;
  const int64_t unit = is_field ? 1 : 8;

  std::vector<int64_t> axes(draw.below(5));
  for (uint64_t left = most_elements; int64_t & axis : axes) {
    const auto length = static_cast<uint64_t>(draw.one_of(lengths));
    axis = static_cast<int64_t>(std::min(draw.coin() ? draw.near(length) : length, left));
    left /= std::max<uint64_t>(1, static_cast<uint64_t>(axis));
  }
  spec.shape = Shape(axes);
  draw_strides(draw, unit, is_field ? spec.width : static_cast<int64_t>(8 * size_of(spec.stored)), spec);
  if (!axes.empty() && draw.coin()) spec.channel_axis = static_cast<int>(draw.below(axes.size()));
  const int64_t channels = spec.channel_axis < 0 ? 1 : axes[static_cast<size_t>(spec.channel_axis)];
  if (spec.channel_axis >= 0 && channels > 0 && draw.below(4) == 3) {
    int64_t& stride = spec.stride_bits[static_cast<size_t>(spec.channel_axis)];
    for (int64_t c = 0; c < channels; c++)
      spec.channel_bits.push_back(
          stride * (draw.coin() ? c : static_cast<int64_t>(draw.below(static_cast<uint64_t>(channels)))));
    stride = draw.coin() ? 0 : stride;
  }
  if (draw.below(4) == 3) spec.scale = draw_values(draw, channels);
  if (draw.below(4) == 3) spec.bias = draw_values(draw, channels);
  if (draw.below(4) == 3) {
    spec.normalize.emplace();
    if (draw.coin()) spec.normalize->scale = draw.any<float>();
    spec.normalize->mean = draw_values(draw, channels);
    spec.normalize->std = draw_values(draw, channels);
    std::ranges::replace(spec.normalize->std, 0.0f, 0.25f);  // -0, too
  }
  spec.bit_offset = unit * static_cast<int64_t>(draw.below(70));
  return spec;
}

inline unpack::ChannelMath steps_of_channel(const unpack::UnpackSpec& spec, int64_t channel) {
  const auto pick = [&](const std::vector<float>& values, float otherwise) {
    return values.empty() ? otherwise : values[values.size() == 1 ? 0 : static_cast<size_t>(channel)];
  };
  unpack::ChannelMath steps{.affine = !spec.scale.empty() || !spec.bias.empty(),
                            .normalize = spec.normalize.has_value()};
  steps.scale = pick(spec.scale, 1);
  steps.bias = pick(spec.bias, 0);
  if (!spec.normalize) return steps;
  steps.normalize_scale = spec.normalize->scale.value_or(1);
  steps.mean = pick(spec.normalize->mean, 0);
  steps.std = pick(spec.normalize->std, 1);
  return steps;
}

/// Where an element of the output lies in a stored row, and what is done with it.
struct Field {
  int64_t bit = 0;
  unpack::ChannelMath steps;
};

/// Returns the fields of all elements of a row.
inline std::vector<Field> fields_of(const unpack::UnpackSpec& spec) {
  std::vector<Field> fields;
  std::vector<int64_t> index(spec.shape.rank());
  for (int64_t element = 0; element < spec.shape.elements(); element++) {
    const int64_t channel = spec.channel_axis < 0 ? 0 : index[static_cast<size_t>(spec.channel_axis)];
    Field field{spec.bit_offset, steps_of_channel(spec, channel)};
    for (size_t axis = 0; axis < index.size(); axis++) field.bit += index[axis] * spec.stride_bits[axis];
    if (!spec.channel_bits.empty()) field.bit += spec.channel_bits[static_cast<size_t>(channel)];
    fields.push_back(field);
    for (size_t axis = index.size(); axis-- > 0 && ++index[axis] == spec.shape[axis];) index[axis] = 0;
  }
  return fields;
}

/// Changes one thing of a good spec whose fields begin at the bits from `first` to `last`. Returns whether the spec still
/// makes sense.
inline bool change(Draw& draw, int64_t first, int64_t last, unpack::UnpackSpec& spec) {
  const bool is_field = spec.stored == DType::unset, is_empty = spec.shape.elements() == 0;
  const int64_t unit = is_field ? 1 : 8, channels = spec.channel_axis < 0 ? 1 : spec.shape[spec.channel_axis];
  const size_t rank = spec.shape.rank();
  const auto count = static_cast<size_t>(std::min<uint64_t>(draw.near(static_cast<uint64_t>(channels)), 5000));
  const bool is_for_each = count <= 1 || static_cast<int64_t>(count) == channels;
  const auto more = static_cast<int64_t>(draw.below(2));
  switch (draw.below(13)) {
    case 0:
      spec.out = more ? DType::bytes : DType::unset;
      return false;
    case 1:
      spec.stored = DType::bytes;
      return false;
    case 2:
      spec.width = static_cast<int>(draw.near(32));
      return !is_field || (spec.width >= 1 && spec.width <= 32);
    case 3:
      spec.stride_bits.resize(rank > 0 && more ? rank - 1 : rank + 1);
      return false;
    case 4:
      spec.channel_axis = static_cast<int>(rank) + static_cast<int>(more);
      return false;
    case 5:
      (more ? spec.scale : spec.bias).assign(count, 1.0f);
      return is_for_each;
    case 6:
    case 7:
      if (!spec.normalize) spec.normalize.emplace();
      (more ? spec.normalize->mean : spec.normalize->std).assign(count, 1.0f);
      return is_for_each;
    case 8:
      if (!spec.normalize) spec.normalize.emplace();
      spec.normalize->std = {more ? 0.0f : -0.0f};
      return false;
    case 9:
      spec.channel_bits.assign(static_cast<size_t>(channels > 1 && more ? channels - 1 : channels + 1), 0);
      return false;
    case 10:
      spec.bit_offset += 1 + static_cast<int64_t>(draw.below(7));
      return is_field;
    case 11:
      spec.bit_offset += more ? (int64_t{1} << 52) - last + unit * static_cast<int64_t>(count % 2)
                              : -first - unit * static_cast<int64_t>(count % 2);
      return is_empty || count % 2 == 0;
    default: {
      // At the most elements of a row of the host or of a GPU, and beyond.
      const auto most = static_cast<int64_t>((more ? uint64_t{1} << 31 : (uint64_t{1} << 40) + 1) + count % 2 - 1);
      spec = {};
      spec.stored = spec.out = DType::uint8;
      spec.shape = {count % 4 < 2 ? most : -most};
      spec.stride_bits = {0};
      return count % 4 < 2 && most <= int64_t{1} << 40;
    }
  }
}

/// Draws blocks that each end with a stored row of `row_bytes`, and have up to 7 bytes before it. Words are random, or
/// numbers that casts treat in a way of their own.
inline std::vector<ExactBlock> draw_rows(Draw& draw, size_t row_bytes) {
  constexpr uint64_t special[] = {0,
                                  ~uint64_t{0},
                                  0x7fffffff7fffffff,
                                  0x8000000080000000,
                                  0x7f8000007f800001,
                                  0xff800000ffc12345,
                                  0x7c007c0103ff0001,
                                  0x7ff0000000000000,
                                  0xfff8000000000001,
                                  0x3f8000003f000000,
                                  0x477fe000477ff000,
                                  0x3380000033800001,
                                  0x43e0000000000000,
                                  0x4f0000004f7fffff,
                                  0x41dfffffffc00000,
                                  0x0101010101010101};
  std::vector<ExactBlock> rows;
  for (size_t i = 0; i < 3; i++) {
    const auto seed = draw.any<uint64_t>();
    const size_t bytes = draw.below(8) + row_bytes;
    rows.emplace_back(std::string(bytes, '\0'));
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
      const uint64_t random = mix64(seed + at),
                     word = random % 4 == 0 ? special[random / 4 % std::size(special)] : random;
      std::memcpy(rows[i].data() + at, &word, std::min(sizeof word, bytes - at));
    }
  }
  return rows;
}

/// Returns the bits of a field as those of a number of field_type().
inline uint64_t stored_bits(const unpack::UnpackSpec& spec, const std::byte* row, int64_t bit) {
  uint64_t value = 0;
  if (spec.stored == DType::unset) {
    for (int64_t i = 0; i < spec.width; i++) {
      const int64_t at = bit + i, in_byte = spec.lsb_first ? at % 8 : 7 - at % 8;
      value |= (static_cast<uint64_t>(row[at / 8]) >> in_byte & 1) << (spec.lsb_first ? i : spec.width - 1 - i);
    }
    if (spec.sign_extend && (value >> (spec.width - 1) & 1)) value |= low_bits(32) & ~low_bits(spec.width);
    return value;
  }
  const auto size = static_cast<int64_t>(size_of(spec.stored));
  for (int64_t i = 0; i < size; i++)
    value |= static_cast<uint64_t>(row[bit / 8 + i]) << 8 * (spec.big_endian ? size - 1 - i : i);
  return value;
}

/// Makes a row of the output.
inline void make_row(const unpack::UnpackSpec& spec, std::span<const Field> fields, const std::byte* row,
                     std::byte* out) {
  const DType stored = spec.stored != DType::unset ? spec.stored : spec.sign_extend ? DType::int32 : DType::uint32;
  for (const Field& field : fields) {
    const uint64_t bits = make_element(stored, stored_bits(spec, row, field.bit), field.steps, spec.out);
    std::memcpy(out, &bits, size_of(spec.out));
    out += size_of(spec.out);
  }
}

}  // namespace feedline::test
