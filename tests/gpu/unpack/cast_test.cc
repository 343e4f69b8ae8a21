// Tests the table of casts, with the kernels of every level, against a slow reference of this test: exact arithmetic in
// long double.
#include "gpu/unpack/cast.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/machine.h"
#include "gpu/unpack/unpack.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::gpu;

namespace {

constexpr DType numbers[] = {DType::boolean, DType::uint8,    DType::int8,    DType::uint16,
                             DType::int16,   DType::uint32,   DType::int32,   DType::int64,
                             DType::float16, DType::bfloat16, DType::float32, DType::float64};

struct Format {
  bool is_float, is_signed;
  int bits, mantissa, exponent;
};
Format format_of(DType dtype) {
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

uint64_t low_bits(int n) { return n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1; }

// Returns the exact value of the bits. A long double has at least the 64 bits of mantissa that int64 needs.
long double decode(DType dtype, uint64_t bits) {
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

// Encodes a value by the table in gpu/README.md.
uint64_t encode(DType dtype, long double value) {
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

uint64_t convert(DType from, DType to, uint64_t bits) {
  if (from == to && from != DType::boolean) return bits;
  return encode(to, decode(from, bits));
}

void add(std::vector<uint64_t>& all, DType dtype, uint64_t bits) {
  all.push_back(bits & low_bits(format_of(dtype).bits));
}

// Returns every value of the small types. For the others: all exponents or powers of two with patterns of mantissa
// around them; values at, beside and between all float16 and bfloat16 values; and random bits.
std::vector<uint64_t> inputs(DType dtype) {
  const Format f = format_of(dtype);
  std::vector<uint64_t> all;
  if (f.bits <= 16) {
    for (uint64_t bits = 0; bits <= low_bits(f.bits); bits++) all.push_back(bits);
    return all;
  }
  for (int bit = 0; bit < 64; bit++)
    for (int other = 0; other <= bit; other++)
      for (uint64_t around : {~uint64_t{1}, ~uint64_t{0}, uint64_t{0}, uint64_t{1}, uint64_t{2}})
        for (uint64_t sign : {uint64_t{0}, ~uint64_t{0}})
          add(all, dtype, (((uint64_t{1} << bit) | (uint64_t{1} << other)) + around) ^ sign);
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; i++) add(all, dtype, random() >> (random() % 64));
  for (int i = 0; i < 20000; i++) add(all, dtype, random());
  if (!f.is_float) return all;

  for (uint64_t exponent = 0; exponent <= low_bits(f.exponent); exponent++)
    for (int bit = -1; bit < f.mantissa; bit++)
      for (uint64_t around : {~uint64_t{0}, uint64_t{0}, uint64_t{1}})
        for (uint64_t sign : {0, 1})
          add(all, dtype,
              (sign << (f.bits - 1)) |
                  (((exponent << f.mantissa) + (bit < 0 ? 0 : uint64_t{1} << bit) + around) & low_bits(f.bits - 1)));
  for (DType small : {DType::float16, DType::bfloat16}) {
    const uint64_t infinity = low_bits(format_of(small).exponent) << format_of(small).mantissa;
    for (uint64_t bits = 0; bits < infinity; bits++) {
      const long double value = decode(small, bits);
      const long double next = bits + 1 < infinity ? decode(small, bits + 1) : 2 * value - decode(small, bits - 1);
      for (long double at : {value, (value + next) / 2}) {
        const uint64_t encoded = encode(dtype, at);
        for (uint64_t around : {~uint64_t{0}, uint64_t{0}, uint64_t{1}}) {
          add(all, dtype, encoded + around);
          add(all, dtype, (encoded + around) ^ uint64_t{1} << (f.bits - 1));
        }
      }
    }
  }
  return all;
}

std::string pair_name(DType from, DType to) { return std::string(name(from)) + " to " + std::string(name(to)); }

std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> all;
  for (SimdLevel level : {SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512})
    if (level <= simd_level()) all.push_back(level);
  return all;
}

std::vector<std::byte> pack(DType dtype, const std::vector<uint64_t>& values) {
  const size_t size = size_of(dtype);
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); i++) std::memcpy(bytes.data() + i * size, &values[i], size);
  return bytes;
}

}  // namespace

TEST_CASE("every cast of every level is the table's") {
  for (DType from : numbers) {
    const std::vector<uint64_t> values = inputs(from);
    const std::vector<std::byte> row = pack(from, values);
    for (DType to : numbers) {
      std::vector<uint64_t> wanted;
      for (uint64_t bits : values) wanted.push_back(convert(from, to, bits));
      const std::vector<std::byte> want = pack(to, wanted);
      UnpackSpec spec;
      spec.stored = from;
      spec.out = to;
      spec.shape = {static_cast<int64_t>(values.size())};
      spec.stride_bits = {static_cast<int64_t>(8 * size_of(from))};
      for (SimdLevel level : levels()) {
        const Unpacker unpack(spec, level);
        std::vector<std::byte> got(want.size());
        const std::byte* rows[] = {row.data()};
        unpack(rows, got.data());
        const size_t at = static_cast<size_t>(std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin());
        INFO(pair_name(from, to) << " " << unpack.kernel());
        if (at < got.size()) FAIL("of the bits " << std::hex << values[at / size_of(to)]);
      }
    }
  }
}

TEST_CASE("the reference for casts is itself checked") {
  CHECK(encode(DType::float32, 0.1L) == 0x3dcccccd);
  CHECK(encode(DType::float64, -2.5L) == 0xc004000000000000);
  CHECK(encode(DType::float16, 65519.9L) == 0x7bff);
  CHECK(encode(DType::float16, 65520.0L) == 0x7c00);
  CHECK(encode(DType::float16, 0x1p-25L) == 0);
  CHECK(encode(DType::float16, 0x1.8p-24L) == 2);
  CHECK(encode(DType::int8, -128.9L) == 0x80);
  CHECK(encode(DType::uint8, -0.9L) == 0);
  CHECK(encode(DType::int64, 1e30L) == 0x7fffffffffffffff);
  CHECK(decode(DType::bfloat16, 0x3fc0) == 1.5L);
  CHECK(decode(DType::int64, uint64_t{1} << 63) == -0x1p63L);
}

TEST_CASE("casts can be computed by the compiler") {
  static_assert(cast<uint8_t>(300.7f) == 255 && cast<uint8_t>(-1) == 0 && cast<int8_t>(-1.9) == -1);
  static_assert(cast<Half>(1.0f).bits == 0x3c00 && cast<BFloat>(int64_t{1} << 40).bits == 0x5380);
  static_assert(cast<float>(Half{0x0001}) == 0x1p-24f && cast<Bool>(Bool{7}).byte == 1);
  // Rounded once: a detour through float32 would give 0x3c00, and 0x4b80 + 1 for the integer.
  static_assert(cast<Half>(1.0 + 0x1p-11 + 0x1p-40).bits == 0x3c01);
  static_assert(cast<BFloat>((int64_t{0x101} << 32) + 1).bits == cast<BFloat>(0x1p40 + 0x1p33).bits);
}

TEST_CASE("a value through a dtype and back") {
  CHECK(cast_through(DType::float32, 0.1) == 0.1f);
  CHECK(cast_through(DType::int32, -7.9) == -7);
  CHECK(cast_through(DType::uint8, 1e9) == 255);
  CHECK(cast_through(DType::boolean, 0.25) == 1);
  CHECK(cast_through(DType::bfloat16, 257) == 256);
  CHECK(cast_through(DType::float64, 0.1) == 0.1);
  CHECK(cast_through(DType::int64, NAN) == 0);
  CHECK(std::isnan(cast_through(DType::float16, NAN)));
}

TEST_CASE("every uint8 and uint16 value, scaled and normalized") {
  for (DType stored : {DType::uint8, DType::uint16}) {
    const std::vector<uint64_t> values = inputs(stored);
    const std::vector<std::byte> row = pack(stored, values);
    for (bool normalize : {false, true}) {
      for (DType to : numbers) {
        UnpackSpec spec;
        spec.stored = stored;
        spec.out = to;
        spec.shape = {static_cast<int64_t>(values.size())};
        spec.stride_bits = {static_cast<int64_t>(8 * size_of(stored))};
        if (normalize) {
          spec.normalize = Normalize{1 / 255.0f, {0.485f}, {0.229f}};
        } else {
          spec.scale = {-1.7f};
          spec.bias = {12.3f};
        }
        std::vector<uint64_t> wanted;
        for (uint64_t value : values) {
          // `volatile` makes each step round to float32, so that the compiler cannot fuse them.
          volatile float x = static_cast<float>(value);
          x = x * (normalize ? 1 / 255.0f : -1.7f);
          x = normalize ? x - 0.485f : x + 12.3f;
          if (normalize) x = x / 0.229f;
          wanted.push_back(encode(to, x));
        }
        const std::vector<std::byte> want = pack(to, wanted);
        for (SimdLevel level : levels()) {
          const Unpacker unpack(spec, level);
          std::vector<std::byte> got(want.size());
          const std::byte* rows[] = {row.data()};
          unpack(rows, got.data());
          INFO(pair_name(stored, to) << " " << unpack.kernel());
          CHECK(got == want);
        }
      }
    }
  }
}
