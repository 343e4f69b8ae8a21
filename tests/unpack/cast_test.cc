// Tests the table of casts, with the kernels of every level, against a slow reference: exact arithmetic in long double.
#include "unpack/cast.h"

#include <cstring>
#include <random>
#include <vector>

#include "base/machine.h"
#include "support/catch.h"
#include "unpack/slow_cast.h"
#include "unpack/unpack.h"

using namespace feedline;
using namespace feedline::unpack;
using namespace feedline::test;

namespace {

constexpr DType numbers[] = {DType::boolean, DType::uint8,    DType::int8,    DType::uint16,
                             DType::int16,   DType::uint32,   DType::int32,   DType::int64,
                             DType::float16, DType::bfloat16, DType::float32, DType::float64};

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
        const ChannelMath steps{.affine = !normalize,
                                .normalize = normalize,
                                .scale = -1.7f,
                                .bias = 12.3f,
                                .normalize_scale = 1 / 255.0f,
                                .mean = 0.485f,
                                .std = 0.229f};
        std::vector<uint64_t> wanted;
        for (uint64_t value : values) wanted.push_back(make_element(stored, value, steps, to));
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
