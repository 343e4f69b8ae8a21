#include "unpack/unpack_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "feedline/error.h"

namespace feedline::unpack {
namespace {

__extension__ using Wide = __int128;  // wide enough that no sum of offsets overflows

constexpr int64_t most_elements = int64_t{1} << 40;
constexpr int64_t most_bits = int64_t{1} << 52;

struct Extent {
  Wide first = 0, last = 0;  // the bit at which the first and the last field begin
};

Extent extent(const UnpackSpec& spec) {
  Extent extent{spec.bit_offset, spec.bit_offset};
  for (size_t axis = 0; axis < spec.shape.rank(); axis++) {
    if (static_cast<int>(axis) == spec.channel_axis && !spec.channel_bits.empty()) {
      Wide first = spec.channel_bits[0], last = first;
      for (size_t c = 0; c < spec.channel_bits.size(); c++) {
        const Wide offset = Wide{spec.stride_bits[axis]} * static_cast<int64_t>(c) + spec.channel_bits[c];
        first = std::min(first, offset);
        last = std::max(last, offset);
      }
      extent.first += first;
      extent.last += last;
    } else {
      const Wide end = Wide{spec.stride_bits[axis]} * (spec.shape[axis] - 1);
      (end < 0 ? extent.first : extent.last) += end;
    }
  }
  return extent;
}

int64_t field_bits(const UnpackSpec& spec) {
  return spec.stored == DType::unset ? spec.width : static_cast<int64_t>(8 * size_of(spec.stored));
}

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Category::bad_pipeline, fmt::format(format, std::forward<Args>(args)...));
}

void check_channel_values(const char* what, size_t values, int64_t channels) {
  if (values > 1 && static_cast<int64_t>(values) != channels)
    refuse("'{}' has {} values for {} channels; write one value for all channels, or one value for each channel", what,
           values, channels);
}

}  // namespace

uint64_t UnpackSpec::row_bytes() const {
  if (shape.elements() == 0) return 0;
  return static_cast<uint64_t>((extent(*this).last + field_bits(*this) + 7) / 8);
}

void validate(const UnpackSpec& spec) {
  if (size_of(spec.out) == 0)
    refuse(
        "an output cannot have the dtype {}; write a type of numbers: BOOL, UINT8, INT8, UINT16, INT16, UINT32, INT32, "
        "INT64, FLOAT16, BFLOAT16, FLOAT32 or FLOAT64",
        name(spec.out));
  if (spec.stored == DType::bytes) refuse("the stored elements of a row must be numbers, not BYTES");
  if (spec.stored == DType::unset && (spec.width < 1 || spec.width > 32))
    refuse("a field must have 1 to 32 bits, not {}", spec.width);

  const size_t rank = spec.shape.rank();
  if (spec.stride_bits.size() != rank)
    refuse("shape {} has {} axes, but there are {} strides", to_string(spec.shape), rank, spec.stride_bits.size());
  int64_t elements = 1;
  for (int64_t axis : spec.shape)
    if (axis < 0 || __builtin_mul_overflow(elements, axis, &elements) || elements > most_elements)
      refuse("shape {} has a negative axis, or more than 2^40 elements", to_string(spec.shape));

  if (spec.channel_axis >= static_cast<int>(rank))
    refuse("axis {} of shape {} does not exist", spec.channel_axis, to_string(spec.shape));
  const int64_t channels = spec.channel_axis < 0 ? 1 : spec.shape[spec.channel_axis];
  check_channel_values("scale", spec.scale.size(), channels);
  check_channel_values("bias", spec.bias.size(), channels);
  if (spec.normalize) {
    check_channel_values("mean", spec.normalize->mean.size(), channels);
    check_channel_values("std", spec.normalize->std.size(), channels);
    for (float std : spec.normalize->std)
      if (std == 0)
        refuse("normalize.std is 0, and values are divided by it; write the standard deviation of the channel, or 1");
  }
  if (!spec.channel_bits.empty() &&
      (spec.channel_axis < 0 || static_cast<int64_t>(spec.channel_bits.size()) != channels))
    refuse("the channel order has {} entries for {} channels", spec.channel_bits.size(), channels);

  if (spec.stored != DType::unset) {
    const auto whole = [](int64_t bits) { return bits % 8 == 0; };
    if (!whole(spec.bit_offset) || !std::all_of(spec.stride_bits.begin(), spec.stride_bits.end(), whole) ||
        !std::all_of(spec.channel_bits.begin(), spec.channel_bits.end(), whole))
      refuse("elements of {} must begin at whole bytes; use offsets and strides that are multiples of 8 bits",
             name(spec.stored));
  }
  if (elements == 0) return;
  const Extent fields = extent(spec);
  if (fields.first < 0) refuse("a field would begin before the first bit of its row");
  if (fields.last > most_bits) refuse("a field would begin more than 2^52 bits after the beginning of its row");
}

Layout::Layout(const UnpackSpec& spec) : base(spec.bit_offset) {
  channel_steps = spec.scale.size() > 1 || spec.bias.size() > 1 ||
                  (spec.normalize && (spec.normalize->mean.size() > 1 || spec.normalize->std.size() > 1));
  for (size_t i = 0; i < spec.shape.rank(); i++) {
    Axis axis{spec.shape[i], spec.stride_bits[i]};
    if (static_cast<int>(i) == spec.channel_axis) {
      if (!spec.channel_bits.empty()) {
        const auto offset = [&](int64_t c) { return c * axis.stride + spec.channel_bits[c]; };
        const int64_t step = axis.length > 1 ? offset(1) - offset(0) : 0;
        bool even = true;
        for (int64_t c = 1; c < axis.length; c++) even = even && offset(c) - offset(c - 1) == step;
        if (even) {
          base += offset(0);
          axis.stride = step;
        } else {
          for (int64_t c = 0; c < axis.length; c++) channel_offset.push_back(offset(c));
          axis.stride = 0;
        }
      }
      axis.channel = channel_steps || !channel_offset.empty();
    }
    if (axis.length == 1) continue;
    if (!axes.empty() && !axes.back().channel && !axis.channel && axes.back().stride == axis.stride * axis.length)
      axes.back() = {axes.back().length * axis.length, axis.stride};
    else
      axes.push_back(axis);
  }
  if (axes.empty()) axes.push_back({1, 0});
}

}  // namespace feedline::unpack
