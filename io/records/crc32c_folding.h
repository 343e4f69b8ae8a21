// CRC32C by carry-less products of 512 bits, for x86-64 with AVX-512 and VPCLMULQDQ: two products fold 64 bytes.
//
// A message is a polynomial. Take 16 bytes of it, h x^64 + l, that lie D bits before 16 later bytes. Modulo P the first
// 16 bytes equal h (x^(D + 64) mod P) + l (x^D mod P) at the place of the later 16 bytes. This sum has 128 bits or
// fewer, so it can be added to the later bytes (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction", Intel 2009). In this way a register of 64 bytes moves along the message. At the end of the
// message the crc32 instruction takes the last 16 bytes modulo P.
#pragma once

#include "io/records/crc32c_hardware.h"

#if defined(__x86_64__)
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12's own headers (GCC bug 105593)
#endif
#define FEEDLINE_FOLD_TARGET __attribute__((target("sse4.2,pclmul,avx512f,avx512bw,vpclmulqdq")))
#define FEEDLINE_FOLD_INLINE FEEDLINE_FOLD_TARGET __attribute__((always_inline)) inline

namespace feedline::io::hardware {

/// The constants that fold 16 bytes of the message forward by n bytes: powers of x modulo the CRC32C polynomial. They
/// are bit-reversed, and each exponent is 33 less than the distance in bits. Shift (crc32c_hardware.h) explains the 33.
struct Fold {
  int64_t first, second;  // the factors for the first and the second 8 bytes: x^(8 n + 31), x^(8 n - 33)
};
/// folds[n] has the constants that fold 16 bytes forward by n bytes.
inline constexpr auto folds = [] {
  std::array<Fold, 257> table{};
  uint32_t first = x_to_the(31), second = x_to_the(0);
  for (int bit = 0; bit < 33; bit++) second = over_x(second);
  for (Fold& fold : table) {
    fold = {first, second};
    for (int bit = 0; bit < 8; bit++) first = times_x(first), second = times_x(second);
  }
  return table;
}();

/// Computes CRCs by the path Crc32cPath::folding. TableStream (crc32c_table.h) says what its members do.
struct Folding {
  static constexpr bool three_records = false;

  FEEDLINE_FOLD_INLINE static uint32_t update(uint32_t crc, const std::byte* p, size_t size) noexcept {
    if (size < width) return OneStream::update(crc, p, size);
    const std::byte* const end = p + size;
    __m512i x =
        _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
    p += width;
    if (static_cast<size_t>(end - p) >= 7 * width) x = fold_four(x, p, end);
    for (; static_cast<size_t>(end - p) >= width; p += width) x = moved(x, all_of(folds[width]), _mm512_loadu_si512(p));
    // Moves the register by the size of the rest, 0 to 63 bytes, without a branch.
    const auto rest = static_cast<size_t>(end - p);
    const __mmask64 last = ~(~uint64_t{0} >> rest);
    return remainder(moved(x, all_of(folds[rest]), _mm512_maskz_loadu_epi8(last, end - width)));
  }
  FEEDLINE_FOLD_INLINE static uint32_t word(uint64_t value) noexcept { return OneStream::word(value); }

 private:
  static constexpr size_t width = 64;                // bytes of a register
  static constexpr size_t prefetch_distance = 2048;  // bytes

  /// Returns the 64 bytes `x`, moved by the factors `by`, plus the bytes `there` at their new place.
  FEEDLINE_FOLD_INLINE static __m512i moved(__m512i x, __m512i by, __m512i there) noexcept {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, by, 0x00), _mm512_clmulepi64_epi128(x, by, 0x11),
                                     there, 0x96);
  }
  /// Returns the factors for all four groups of 16 bytes of a register.
  FEEDLINE_FOLD_INLINE static __m512i all_of(const Fold& fold) noexcept {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(&fold)));
  }

  /// Folds with four registers side by side, because a product has a latency of four cycles. Returns the four registers
  /// folded into one, and advances `p` past the bytes that were used.
  FEEDLINE_FOLD_INLINE static __m512i fold_four(__m512i x, const std::byte*& p, const std::byte* end) noexcept {
    const __m512i by_four = all_of(folds[4 * width]);
    __m512i lane[] = {x, _mm512_loadu_si512(p), _mm512_loadu_si512(p + width), _mm512_loadu_si512(p + 2 * width)};
    for (p += 3 * width; static_cast<size_t>(end - p) >= 4 * width; p += 4 * width) {
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; i++) {
        __builtin_prefetch(p + i * width + prefetch_distance);
        lane[i] = moved(lane[i], by_four, _mm512_loadu_si512(p + i * width));
      }
    }
    for (size_t i = 1; i < 4; i++) lane[i] = moved(lane[i - 1], all_of(folds[width]), lane[i]);
    return lane[3];
  }

  /// Moves the first three quarters of `x` to the last quarter, and returns the CRC register that the sum of all four
  /// leaves modulo P.
  FEEDLINE_FOLD_INLINE static uint32_t remainder(__m512i x) noexcept {
    constexpr Fold first = folds[48], second = folds[32], third = folds[16];
    const __m512i by =
        _mm512_set_epi64(0, 0, third.second, third.first, second.second, second.first, first.second, first.first);
    const __m512i products =
        _mm512_xor_si512(_mm512_clmulepi64_epi128(x, by, 0x00), _mm512_clmulepi64_epi128(x, by, 0x11));
    const __m512i terms = _mm512_mask_blend_epi64(0xc0, products, x);
    const __m256i halves = _mm256_xor_si256(_mm512_castsi512_si256(terms), _mm512_extracti64x4_epi64(terms, 1));
    const __m128i last = _mm_xor_si128(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    return step(step(uint32_t{0}, static_cast<uint64_t>(_mm_cvtsi128_si64(last))),
                static_cast<uint64_t>(_mm_extract_epi64(last, 1)));
  }
};

}  // namespace feedline::io::hardware
#endif
