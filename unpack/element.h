// Reads the bits of one element and computes its value as unpack/unpack_spec.h defines it. The same code is
// compiled for the CPU and for GPUs.
#pragma once

#include <cstddef>

#include "unpack/cast.h"

namespace feedline::unpack {

/// Returns the field of `width` (1 to 32) bits that begins at bit `bit` of the row, in the row's bit order.
FEEDLINE_ELEMENT uint32_t read_bits(const std::byte* row, uint64_t bit, int width, bool lsb_first) {
  uint32_t value = 0;
  for (int i = 0; i < width; i++, bit++) {
    const uint32_t byte = static_cast<uint32_t>(row[bit / 8]);
    if (lsb_first)
      value |= (byte >> (bit % 8) & 1) << i;
    else
      value = value << 1 | (byte >> (7 - bit % 8) & 1);
  }
  return value;
}

/// Returns the low `width` bits of `value` as a signed number in two's complement.
FEEDLINE_ELEMENT int32_t sign_extended(uint32_t value, int width) {
  return static_cast<int32_t>(value << (32 - width)) >> (32 - width);
}

/// Returns the element that is stored at `at`, which need not be aligned.
template <typename T>
FEEDLINE_ELEMENT T read_element(const std::byte* at, bool big_endian) {
  struct Bytes {
    std::byte byte[sizeof(T)];
  } bytes{};
  for (size_t i = 0; i < sizeof(T); i++) bytes.byte[i] = at[big_endian ? sizeof(T) - 1 - i : i];
  return __builtin_bit_cast(T, bytes);
}

/// The parameters of one channel. A step that the pipeline leaves out is not done. A parameter that the pipeline leaves
/// out has a value that changes nothing.
struct ChannelMath {
  bool affine = false, normalize = false;        // whether each step is done
  float scale = 1, bias = 0;                     // parameters of affine
  float normalize_scale = 1, mean = 0, std = 1;  // parameters of normalize
};

/// Turns decoded values into output values. Computes the channel's steps (affine, then normalize) in float32, if there
/// are any, and casts the results to the output's type.
template <typename To, typename From, int count>
FEEDLINE_ELEMENT void apply(const ChannelMath& steps, const From (&values)[count], To (&out)[count]) {
  if (!steps.affine && !steps.normalize) {
    for (int i = 0; i < count; i++) out[i] = cast<To>(values[i]);
    return;
  }
  float x[count] = {};
  for (int i = 0; i < count; i++) x[i] = cast<float>(values[i]);
  if (steps.affine)
    for (int i = 0; i < count; i++) x[i] = affine(x[i], steps.scale, steps.bias);
  if (steps.normalize)
    for (int i = 0; i < count; i++) x[i] = normalized(x[i], steps.normalize_scale, steps.mean, steps.std);
  for (int i = 0; i < count; i++) out[i] = cast<To>(x[i]);
}

/// Returns the output value of one decoded value.
template <typename To, typename From>
FEEDLINE_ELEMENT To apply(const ChannelMath& steps, From value) {
  const From values[1] = {value};
  To out[1] = {};
  apply(steps, values, out);
  return out[0];
}

}  // namespace feedline::unpack
