// Every cast of one element between the 12 number dtypes, and the arithmetic of unpacking.
//
// unpack/README.md has the table of casts. This file defines these casts for every device. The functions are constexpr
// and call no library. They use only integer operations and IEEE float32 arithmetic in the default rounding mode
// (float64 is converted, never computed with), and nothing that leaves the compiler a choice. They are always inlined,
// so that sources compiled for newer instruction sets emit no copy of them that the linker could pick for older CPUs.
#pragma once

#include <cstdint>
#include <type_traits>

#include "feedline/tensor.h"

#define FEEDLINE_ELEMENT [[gnu::always_inline]] constexpr inline

namespace feedline::unpack {

struct Bool {
  uint8_t byte;  // as stored: every value other than 0 is true
};
struct Half {
  uint16_t bits;  // IEEE 754 binary16
};
struct BFloat {
  uint16_t bits;  // the upper half of a binary32
};

inline constexpr uint16_t half_nan = 0x7e00, bfloat_nan = 0x7fc0;
inline constexpr uint32_t float_nan = 0x7fc00000;
inline constexpr uint64_t double_nan = 0x7ff8000000000000;

namespace detail {

template <typename T>
inline constexpr int digits = static_cast<int>(sizeof(T) * 8) - std::is_signed_v<T>;  // value bits
template <typename T>
inline constexpr T highest = static_cast<T>(~uint64_t{0} >> (64 - digits<T>));
template <typename T>
inline constexpr T lowest = static_cast<T>(-highest<T> - 1);  // only for signed types

FEEDLINE_ELEMENT uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
FEEDLINE_ELEMENT uint64_t bits_of(double x) { return __builtin_bit_cast(uint64_t, x); }
FEEDLINE_ELEMENT float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
FEEDLINE_ELEMENT double double_of(uint64_t bits) { return __builtin_bit_cast(double, bits); }

// Rounds x to a 16-bit float, to nearest even. Starts from the exact bits of x, so x is rounded only once.
template <int mantissa_bits, int exponent_bits>
FEEDLINE_ELEMENT uint16_t narrow(double x) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  const uint64_t bits = bits_of(x), magnitude = bits << 1 >> 1;
  const uint32_t sign = static_cast<uint32_t>(bits >> 63) << 15;
  if (magnitude > uint64_t{0x7ff} << 52) return infinity | (1u << (mantissa_bits - 1));
  const int exponent = static_cast<int>(magnitude >> 52) - 1023 + bias;  // the exponent of a normal result
  if (exponent >= (1 << exponent_bits) - 1) return static_cast<uint16_t>(sign | infinity);
  if (exponent < -mantissa_bits) return static_cast<uint16_t>(sign);  // below half of the smallest subnormal
  const uint64_t significand = (magnitude & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  const int shift = 52 - mantissa_bits + (exponent > 0 ? 0 : 1 - exponent);
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1), half = uint64_t{1} << (shift - 1);
  uint32_t result = static_cast<uint32_t>(significand >> shift);
  result += rest > half || (rest == half && (result & 1));
  // The implicit leading bit adds 1 to the exponent, and so does a carry out of the mantissa.
  if (exponent > 0) result += static_cast<uint32_t>(exponent - 1) << mantissa_bits;
  return static_cast<uint16_t>(sign | result);
}

// Round a float32 to a 16-bit float as narrow() does, but without branches. The additions round at the bit where the
// mantissa of the result ends.
FEEDLINE_ELEMENT uint16_t half_bits(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  uint32_t result = magnitude < 113u << 23 ? subnormal : normal;
  result = magnitude >= 143u << 23 ? 0x7c00 : result;  // 65536 and above; smaller values reach infinity by the carry
  return static_cast<uint16_t>(magnitude > 255u << 23 ? uint32_t{half_nan} : sign | result);
}
FEEDLINE_ELEMENT uint16_t bfloat_bits(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 255u << 23 ? uint32_t{bfloat_nan} : rounded);
}

FEEDLINE_ELEMENT float canonical(float x) { return x == x ? x : float_of(float_nan); }

FEEDLINE_ELEMENT float widen(Half h) {
  const uint32_t magnitude = h.bits & 0x7fffu, sign = (h.bits & 0x8000u) << 16;
  const float normal = float_of((magnitude << 13) + (magnitude >= 0x7c00 ? 224u << 23 : 112u << 23));
  const float subnormal = float_of((magnitude << 13) + (113u << 23)) - float_of(113u << 23);
  const uint32_t result = bits_of(magnitude < 0x400 ? subnormal : normal) | sign;
  return float_of(magnitude > 0x7c00 ? float_nan : result);
}
FEEDLINE_ELEMENT float widen(BFloat b) { return canonical(float_of(static_cast<uint32_t>(b.bits) << 16)); }

// Rounds x towards zero. Values outside the range of To become its nearest value, and NaN becomes 0.
template <typename To, typename From>
FEEDLINE_ELEMENT To truncate(From x) {
  // To's range is below <= x < above. `top` is the largest value of From in that range.
  constexpr From above = static_cast<From>(uint64_t{1} << (digits<To> - 1)) * From(2);
  constexpr From below = std::is_signed_v<To> ? -above : From(0);
  constexpr int precision = std::is_same_v<From, float> ? 24 : 53;
  constexpr From top =
      digits<To> <= precision
          ? static_cast<From>(highest<To>)
          : above - static_cast<From>(uint64_t{1} << (digits < To >> precision ? digits<To> - precision : 0));
  using Wide = std::conditional_t<(digits<To> < 32), int32_t, int64_t>;
  From inside = x > below ? x : below;  // NaN becomes `below`
  inside = inside < top ? inside : top;
  const To result = x >= above ? highest<To> : static_cast<To>(static_cast<Wide>(inside));
  return x == x ? result : To(0);
}

// Returns x as a float64, rounded to odd. If the caller rounds this float64 to a type with at most 51 mantissa bits,
// the outcome is the same as if the integer x itself were rounded to that type.
FEEDLINE_ELEMENT double odd_double(int64_t x) {
  const uint64_t magnitude = x < 0 ? 0 - static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
  const uint64_t folded = ((magnitude >> 11) | ((magnitude & 0x7ff) != 0)) << 11;
  const double value = static_cast<double>(magnitude >> 53 ? folded : magnitude);
  return x < 0 ? -value : value;
}

}  // namespace detail

/// Casts one element, by the table in unpack/README.md.
template <typename To, typename From>
FEEDLINE_ELEMENT To cast(From x) {
  using namespace detail;
  if constexpr (std::is_same_v<From, Bool>) {
    if constexpr (std::is_same_v<To, Bool>)
      return {x.byte != 0};
    else
      return cast<To>(static_cast<uint8_t>(x.byte != 0));
  } else if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat>) {
    return cast<To>(widen(x));
  } else if constexpr (std::is_same_v<To, Bool>) {
    return {x != 0};
  } else if constexpr (std::is_integral_v<From>) {
    if constexpr (std::is_integral_v<To>) {
      // x is only compared with a bound that From can exceed.
      if constexpr (std::is_signed_v<From> && !std::is_signed_v<To>) x = x < 0 ? From(0) : x;
      if constexpr (std::is_signed_v<From> && std::is_signed_v<To> && digits < From >> digits<To>)
        x = x < static_cast<From>(lowest<To>) ? static_cast<From>(lowest<To>) : x;
      if constexpr (digits < From >> digits<To>)
        x = x > static_cast<From>(highest<To>) ? static_cast<From>(highest<To>) : x;
      return static_cast<To>(x);
    } else if constexpr (std::is_same_v<To, Half>) {
      // float32 holds every integer that does not become infinity in float16.
      return {half_bits(static_cast<float>(x))};
    } else if constexpr (std::is_same_v<To, BFloat>) {
      if constexpr (digits<From> <= 24)
        return {bfloat_bits(static_cast<float>(x))};
      else
        return {narrow<7, 8>(odd_double(x))};
    } else {
      return static_cast<To>(x);
    }
  } else if constexpr (std::is_integral_v<To>) {
    return truncate<To>(x);
  } else if constexpr (std::is_same_v<To, Half>) {
    if constexpr (std::is_same_v<From, float>)
      return {half_bits(x)};
    else
      return {narrow<10, 5>(x)};
  } else if constexpr (std::is_same_v<To, BFloat>) {
    if constexpr (std::is_same_v<From, float>)
      return {bfloat_bits(x)};
    else
      return {narrow<7, 8>(x)};
  } else if constexpr (std::is_same_v<To, float>) {
    return canonical(static_cast<float>(x));
  } else {
    return x == x ? static_cast<double>(x) : double_of(double_nan);
  }
}

/// Two steps of the definition in unpack/unpack_spec.h: affine() applies scale and bias, normalized() applies
/// `normalize`. A result that is NaN is the canonical NaN on every device.
FEEDLINE_ELEMENT float affine(float x, float scale, float bias) { return detail::canonical(scale * x + bias); }
FEEDLINE_ELEMENT float normalized(float x, float scale, float mean, float std) {
  return detail::canonical((x * scale - mean) / std);
}

}  // namespace feedline::unpack
