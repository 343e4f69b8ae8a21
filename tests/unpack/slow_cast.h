// The table of casts and the arithmetic of unpacking, slow and simple: exact values in long double. The references of tests
// that compare the kernels with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "feedline/tensor.h"
#include "unpack/element.h"

namespace feedline::test {

/// How the bits of a number are divided.
struct Format {
  bool is_float, is_signed;
  int bits, mantissa, exponent;
};
inline Format format_of(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return {false, false, 8, 0, 0};
    case DType::uint8:
      return {false, false, 8, 0, 0};
    case DType::int8:
      return {false, true, 8, 0, 0};
    case DType::uint16:
      return {false, false, 16, 0, 0};
    case DType::int16:
      return {false, true, 16, 0, 0};
    case DType::uint32:
      return {false, false, 32, 0, 0};
    case DType::int32:
      return {false, true, 32, 0, 0};
    case DType::int64:
      return {false, true, 64, 0, 0};
    case DType::float16:
      return {true, true, 16, 10, 5};
    case DType::bfloat16:
      return {true, true, 16, 7, 8};
    case DType::float32:
      return {true, true, 32, 23, 8};
    case DType::float64:
      return {true, true, 64, 52, 11};
    default:
      throw std::logic_error("no number");
  }
}

inline uint64_t low_bits(int n) { return n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

/// Returns the exact value of the bits. A long double has at least the 64 bits of mantissa that int64 needs.
inline long double decode(DType dtype, uint64_t bits) {
  const Format f = format_of(dtype);
  if (dtype == DType::boolean) return bits != 0;
  if (!f.is_float) {
    const bool negative = f.is_signed && (bits >> (f.bits - 1) & 1);
    return negative ? -static_cast<long double>(low_bits(f.bits) - bits) - 1 : static_cast<long double>(bits);
  }
  const auto exponent = static_cast<int>(bits >> f.mantissa & low_bits(f.exponent));
  const uint64_t mantissa = bits & low_bits(f.mantissa);
  const int bias = (1 << (f.exponent - 1)) - 1;
  long double value;
  if (exponent == static_cast<int>(low_bits(f.exponent)))
    value = mantissa ? std::numeric_limits<long double>::quiet_NaN() : std::numeric_limits<long double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(static_cast<long double>(mantissa), 1 - bias - f.mantissa);
  else
    value = std::ldexp(static_cast<long double>(mantissa | uint64_t{1} << f.mantissa), exponent - bias - f.mantissa);
  return bits >> (f.bits - 1) & 1 ? -value : value;
}

/// Encodes a value by the table in unpack/README.md.
inline uint64_t encode(DType dtype, long double value) {
  const Format f = format_of(dtype);
  if (dtype == DType::boolean) return std::isnan(value) || value != 0;
  if (!f.is_float) {
    if (std::isnan(value)) return 0;
    const long double highest = std::ldexp(1.0L, f.bits - f.is_signed) - 1;
    const long double lowest = f.is_signed ? -highest - 1 : 0;
    value = std::min(std::max(std::trunc(value), lowest), highest);
    return (value < 0 ? ~static_cast<uint64_t>(-value - 1) : static_cast<uint64_t>(value)) & low_bits(f.bits);
  }
  const uint64_t infinity = low_bits(f.exponent) << f.mantissa;
  if (std::isnan(value)) return infinity | uint64_t{1} << (f.mantissa - 1);
  const uint64_t sign = std::signbit(value) ? uint64_t{1} << (f.bits - 1) : 0;
  value = std::fabs(value);
  if (value == 0) return sign;
  if (std::isinf(value)) return sign | infinity;
  const int bias = (1 << (f.exponent - 1)) - 1;
  const int exponent = std::max(std::ilogb(value), 1 - bias);
  const long double units = std::ldexp(value, f.mantissa - exponent), floor = std::floor(units);
  auto rounded = static_cast<uint64_t>(floor);
  if (units - floor > 0.5L || (units - floor == 0.5L && rounded % 2)) rounded++;
  // `rounded` counts units in the last place at `exponent`, and includes the implicit bit. So its sum with the
  // exponent's bits is right, even if the rounding carried.
  const uint64_t bits = (static_cast<uint64_t>(exponent + bias - 1) << f.mantissa) + rounded;
  return sign | std::min(bits, infinity);
}

/// Casts the bits of one element.
inline uint64_t convert(DType from, DType to, uint64_t bits) {
  if (from == to && from != DType::boolean) return bits;
  return encode(to, decode(from, bits));
}

/// Makes an element of an output as unpack/unpack_spec.h defines it: the steps in float32, each rounded, and a cast.
inline uint64_t make_element(DType from, uint64_t bits, const unpack::ChannelMath& steps, DType to) {
  if (!steps.affine && !steps.normalize) return convert(from, to, bits);
  // `volatile` makes each step round to float32, so that the compiler cannot fuse them.
  volatile float x = static_cast<float>(decode(from, bits));
  if (steps.affine) {
    x = x * steps.scale;
    x = x + steps.bias;
  }
  if (steps.normalize) {
    x = x * steps.normalize_scale;
    x = x - steps.mean;
    x = x / steps.std;
  }
  return encode(to, x);
}

}  // namespace feedline::test
