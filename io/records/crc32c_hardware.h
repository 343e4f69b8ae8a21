// CRC32C by the CPU's own instruction, for x86-64 and ARMv8: over one stream, and over three at once.
//
// Every function here is compiled for FEEDLINE_CRC_TARGET, whatever the compiler flags of the file are, and may run
// only if supported() says so. For other CPUs this header defines nothing.
//
// "Register" means the state of the computation: the complement of the CRC of the bytes so far.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/load.h"
#include "io/records/crc32c_constants.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define FEEDLINE_CRC_TARGET __attribute__((target("sse4.2,pclmul")))
#elif defined(__aarch64__) && defined(__clang__)
#include <arm_acle.h>
#include <arm_neon.h>
#define FEEDLINE_CRC_TARGET __attribute__((target("crc,aes")))
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <arm_neon.h>
#define FEEDLINE_CRC_TARGET __attribute__((target("+crc+crypto")))
#endif

#ifdef FEEDLINE_CRC_TARGET
#define FEEDLINE_CRC_INLINE FEEDLINE_CRC_TARGET __attribute__((always_inline)) inline

namespace feedline::io::hardware {

// step() returns the register `crc` after one more word of 8 bytes, or after one more byte.
#if defined(__x86_64__)
FEEDLINE_CRC_INLINE uint32_t step(uint32_t crc, uint64_t word) noexcept {
  return static_cast<uint32_t>(_mm_crc32_u64(crc, word));
}
FEEDLINE_CRC_INLINE uint32_t step(uint32_t crc, uint8_t byte) noexcept { return _mm_crc32_u8(crc, byte); }
/// Returns the carry-less product of two polynomials of 32 bits.
FEEDLINE_CRC_INLINE uint64_t product(uint32_t a, uint32_t b) noexcept {
  return static_cast<uint64_t>(_mm_cvtsi128_si64(
      _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(a)), _mm_cvtsi32_si128(static_cast<int>(b)), 0)));
}
#else
FEEDLINE_CRC_INLINE uint32_t step(uint32_t crc, uint64_t word) noexcept { return __crc32cd(crc, word); }
FEEDLINE_CRC_INLINE uint32_t step(uint32_t crc, uint8_t byte) noexcept { return __crc32cb(crc, byte); }
FEEDLINE_CRC_INLINE uint64_t product(uint32_t a, uint32_t b) noexcept {
  return vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64(a, b)), 0);
}
#endif

/// Returns the register after the last `size` % 8 bytes of a buffer of `size` bytes that ends at `end`.
/// Precondition: size >= 8.
///
/// There is no branch. Let k be the number of these last bytes. They are xored into the register. The lower k bytes of
/// the result are shifted to the top of a word, whose zeros below them do not change a CRC, and step() reduces the
/// word. The upper bytes of the register move down by k bytes.
FEEDLINE_CRC_INLINE uint32_t finish(uint32_t crc, const std::byte* end, size_t size) noexcept {
  const unsigned bits = 8 * (size % 8);
  const uint64_t mixed = crc ^ ((load<uint64_t>(end - 8) >> 1) >> (63 - bits));
  return step(uint32_t{0}, (mixed << 1) << (63 - bits)) ^ static_cast<uint32_t>(mixed >> bits);
}

/// Returns the register `crc` after `size` more bytes, one at a time. For fewer than 8 bytes.
FEEDLINE_CRC_INLINE uint32_t bytes(uint32_t crc, const std::byte* p, size_t size) noexcept {
  for (; size > 0; size--) crc = step(crc, std::to_integer<uint8_t>(*p++));
  return crc;
}

/// Returns the registers of three separate buffers, each of 8 bytes or more. They are computed side by side, because
/// the instruction accepts one word per cycle but has a latency of three cycles. The buffers may differ in size: the
/// length that all three have is done side by side, and the rest one buffer after another.
FEEDLINE_CRC_INLINE std::array<uint32_t, 3> update_three(const std::array<const std::byte*, 3>& p,
                                                         const std::array<size_t, 3>& size) noexcept {
  uint32_t a = ~uint32_t{0}, b = a, c = a;
  const size_t together = std::min({size[0], size[1], size[2]}) / 8 * 8;
  for (size_t i = 0; i < together; i += 8) {
    a = step(a, load<uint64_t>(p[0] + i));
    b = step(b, load<uint64_t>(p[1] + i));
    c = step(c, load<uint64_t>(p[2] + i));
  }
  std::array<uint32_t, 3> crc{a, b, c};
  for (size_t k = 0; k < 3; k++) {
    for (size_t i = together; i + 8 <= size[k]; i += 8) crc[k] = step(crc[k], load<uint64_t>(p[k] + i));
    crc[k] = finish(crc[k], p[k] + size[k], size[k]);
  }
  return crc;
}

/// Computes CRCs by the path Crc32cPath::hardware. TableStream (crc32c_table.h) says what its members do.
struct OneStream {
  static constexpr bool three_records = true;
  FEEDLINE_CRC_INLINE static uint32_t update(uint32_t crc, const std::byte* p, size_t size) noexcept {
    if (size < 8) return bytes(crc, p, size);
    const std::byte* const end = p + size;
    for (; end - p >= 8; p += 8) crc = step(crc, load<uint64_t>(p));
    return finish(crc, end, size);
  }
  FEEDLINE_CRC_INLINE static uint32_t word(uint64_t value) noexcept { return step(~uint32_t{0}, value); }
};

/// The factors that join three streams of w words each. The first stream ends 2 w words before the end of all three,
/// and the second one ends w words before it. Multiplying a register by x^n appends n zero bits to its message. The
/// exponents are smaller by 33 for two reasons: the product of reflected polynomials comes out divided by x, and the
/// step over the word that holds the product multiplies by x^32.
struct Shift {
  uint32_t one, two;  // x^(64 w - 33) for the second stream, x^(128 w - 33) for the first
};
inline constexpr size_t most_words = 256;                        // the largest w; longer streams bring no gain
inline constexpr size_t line_words = 8;                          // words in a cache line
inline constexpr size_t prefetch_distance = 3 * 8 * most_words;  // bytes to the same place of the next three streams
inline constexpr auto shifts = [] {
  std::array<Shift, most_words + 1> table{};
  // For w = 1 the factors are x^31 and x^95. Each further word multiplies them by x^64 and x^128.
  uint32_t one = x_to_the(31), two = x_to_the(95);
  for (size_t w = 1; w <= most_words; w++) {
    table[w] = {one, two};
    for (int bit = 0; bit < 64; bit++) one = times_x(one);
    for (int bit = 0; bit < 128; bit++) two = times_x(two);
  }
  return table;
}();

/// Computes CRCs by the path Crc32cPath::three_way. TableStream (crc32c_table.h) says what its members do. update()
/// cuts one buffer into three streams, so that the instruction is always busy, as in update_three().
struct ThreeStreams {
  static constexpr bool three_records = true;
  FEEDLINE_CRC_INLINE static uint32_t update(uint32_t crc, const std::byte* p, size_t size) noexcept {
    if (size < 8) return bytes(crc, p, size);
    const std::byte* const end = p + size;
    // With fewer than three words per stream, joining costs more than the streams save.
    for (size_t words; (words = static_cast<size_t>(end - p) / 24) >= 3;) {
      if (words > most_words) words = most_words;
      const std::byte* const second = p + 8 * words;
      const std::byte* const third = second + 8 * words;
      uint32_t b = 0, c = 0;
      const auto step_all = [&](size_t i) FEEDLINE_CRC_TARGET {
        crc = step(crc, load<uint64_t>(p + 8 * i));
        b = step(b, load<uint64_t>(second + 8 * i));
        c = step(c, load<uint64_t>(third + 8 * i));
      };
      size_t i = 0;
      for (; i + line_words < words; i += line_words) {
        for (const std::byte* stream : {p, second, third}) __builtin_prefetch(stream + 8 * i + prefetch_distance);
#pragma GCC unroll 8
        for (size_t k = 0; k < line_words; k++) step_all(i + k);
      }
      for (; i + 1 < words; i++) step_all(i);
      const size_t last = 8 * (words - 1);
      crc = step(crc, load<uint64_t>(p + last));
      b = step(b, load<uint64_t>(second + last));
      const auto last_word = load<uint64_t>(third + last);
      crc = step(c, last_word ^ product(crc, shifts[words].two) ^ product(b, shifts[words].one));
      p = third + 8 * words;
    }
    for (; end - p >= 8; p += 8) crc = step(crc, load<uint64_t>(p));
    return finish(crc, end, size);
  }
  FEEDLINE_CRC_INLINE static uint32_t word(uint64_t value) noexcept { return step(~uint32_t{0}, value); }
};

}  // namespace feedline::io::hardware
#endif
