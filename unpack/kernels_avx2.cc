// Kernels for AVX2, BMI2 and F16C.
#include <immintrin.h>

#include "unpack/cast.h"
#include "unpack/kernels.h"

namespace feedline::unpack {
namespace avx2 {

// A shuffle of bytes: index[i] says which of 16 source bytes result byte i gets. If it is 128, result byte i is 0.
struct Pick {
  alignas(16) uint8_t index[16];
};
inline __m128i picked(__m128i from, const Pick& pick) {
  return _mm_shuffle_epi8(from, _mm_load_si128(reinterpret_cast<const __m128i*>(pick.index)));
}
inline __m128i load16(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline __m128i either(__m128i a, __m128i b, __m128i c) { return _mm_or_si128(_mm_or_si128(a, b), c); }

// Returns the shuffle that picks every third byte of 48 source bytes, which are loaded into three vectors. The shuffle
// is for the vector with the number `vector`, and sets to 0 the result bytes that come from the other two vectors.
consteval Pick thirds_pick(size_t vector) {
  constexpr size_t begin[3] = {0, 16, 30};  // the last vector ends with the last byte that is picked
  Pick pick{};
  for (size_t i = 0; i < 16; i++)
    pick.index[i] = static_cast<uint8_t>(3 * i / 16 == vector ? 3 * i - begin[vector] : 128);
  return pick;
}
constexpr Pick thirds_picks[3] = {thirds_pick(0), thirds_pick(1), thirds_pick(2)};
// Returns the shuffle that interleaves the bytes of `channel` with those of two other channels: every third result byte
// is the channel's, the others are 0. `part` says which 16 of the 48 result bytes the shuffle makes.
consteval Pick triples_pick(size_t part, size_t channel) {
  Pick pick{};
  for (size_t i = 0; i < 16; i++)
    pick.index[i] = static_cast<uint8_t>((16 * part + i) % 3 == channel ? (16 * part + i) / 3 : 128);
  return pick;
}
constexpr Pick triples_picks[3][3] = {{triples_pick(0, 0), triples_pick(0, 1), triples_pick(0, 2)},
                                      {triples_pick(1, 0), triples_pick(1, 1), triples_pick(1, 2)},
                                      {triples_pick(2, 0), triples_pick(2, 1), triples_pick(2, 2)}};

inline size_t thirds(const std::byte* in, std::byte* out, size_t n) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16, in += 48)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     either(picked(load16(in), thirds_picks[0]), picked(load16(in + 16), thirds_picks[1]),
                            picked(load16(in + 30), thirds_picks[2])));
  return i;
}
inline size_t triples(const std::byte* in, int64_t stride, std::byte* out, size_t n) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16, in += 16, out += 48) {
    const __m128i a = load16(in), b = load16(in + stride), c = load16(in + 2 * stride);
    for (size_t part = 0; part < 3; part++)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16 * part),
                       either(picked(a, triples_picks[part][0]), picked(b, triples_picks[part][1]),
                              picked(c, triples_picks[part][2])));
  }
  return i;
}

#include "unpack/kernels_common.h"
#include "unpack/kernels_x86.h"

// --- single bits ---
//
// 32 source bytes are spread over 32 lanes, and each is tested for its bit. The 32 results are widened to masks of
// whole elements, which choose between two vectors.

inline __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Returns a byte for each lane: its bits are all 1 if the lane's bit is set, else all 0.
inline __m256i chosen(const BitLayout& layout, const BitLayout::Block& block, const std::byte* row) {
  const auto spread = [row](uint64_t byte, const std::byte* picks) {  // lanes without a pick become 0
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + byte));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), load(picks));
  };
  __m256i bytes = spread(block.byte, block.recipe);
  for (uint32_t i = 0; i < block.more_windows; i++) {
    const BitLayout::Window& window = layout.windows[block.more + i];
    bytes = _mm256_or_si256(bytes, spread(window.byte, window.picks));
  }
  const __m256i bit = load(block.recipe + 32);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}

// Returns a shuffle that widens mask bytes to masks of type T: it says for each byte of a vector of T which of 16 mask
// bytes is repeated there. The shuffle number `part` widens the group number `part` of 32 / sizeof(T) neighbouring mask
// bytes.
template <typename T>
__m256i repeats(size_t part) {
  alignas(32) uint8_t from[32];
  for (size_t i = 0; i < 32; i++) from[i] = static_cast<uint8_t>(part * (32 / sizeof(T)) + i / sizeof(T));
  return load(from);
}

template <typename T, bool low_is_zero>
void bits_of(const BitLayout layout, const std::byte* const* rows, size_t n, std::byte* out, size_t out_stride) {
  constexpr size_t block_bytes = 32 * sizeof(T), parts = sizeof(T) > 1 ? sizeof(T) / 2 : 1;
  __m256i repeat[parts];
  for (size_t part = 0; part < parts; part++) repeat[part] = repeats<T>(part);
  const BitLayout::Block* const last = layout.blocks + layout.elements / 32;
  const size_t rest = layout.elements % 32 * sizeof(T);
  for (size_t i = 0; i < n; i++, out += out_stride) {
    const std::byte* row = rows[i];
    std::byte padded[16] = {};
    if (layout.row_bytes < sizeof(padded)) {
      for (size_t byte = 0; byte < layout.row_bytes; byte++) padded[byte] = row[byte];
      row = padded;
    }
    const auto run = [&](const BitLayout::Block block, std::byte* to) {  // by value, so no store can change it
      const __m256i ones = chosen(layout, block, row);
      const __m256i halves[2] = {_mm256_permute4x64_epi64(ones, 0x44), _mm256_permute4x64_epi64(ones, 0xee)};
      const std::byte *high = block.recipe + 64, *low = high + block_bytes;
      for (size_t v = 0; v < sizeof(T); v++) {
        const __m256i mask = sizeof(T) == 1 ? ones : _mm256_shuffle_epi8(halves[v / parts], repeat[v % parts]);
        const __m256i value = low_is_zero ? _mm256_and_si256(mask, load(high + 32 * v))
                                          : _mm256_blendv_epi8(load(low + 32 * v), load(high + 32 * v), mask);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32 * v), value);
      }
    };
    std::byte* to = out;
    for (const BitLayout::Block* block = layout.blocks; block < last; block++, to += block_bytes) run(*block, to);
    if (rest == 0) continue;
    std::byte end[block_bytes];
    run(*last, end);
    __builtin_memcpy(to, end, rest);
  }
}

template <typename T>
void bits(const BitLayout& layout, const std::byte* const* rows, size_t n, std::byte* out, size_t out_stride) {
  if (layout.low_is_zero)
    bits_of<T, true>(layout, rows, n, out, out_stride);
  else
    bits_of<T, false>(layout, rows, n, out, out_stride);
}

// --- fields of several bits ---
//
// Does what fields() of kernels_common.h does, four fields at a time. This is only for unsigned fields, because AVX2
// has no arithmetic shift to the right of 64-bit numbers.

inline void gather_fields(const FieldLayout& layout, const std::byte* row, int64_t base, uint32_t* out, size_t n) {
  const __m256i last = _mm256_set1_epi64x(static_cast<int64_t>(layout.row_bytes) - 8);
  const __m256i down = _mm256_set1_epi64x(64 - layout.width), first = _mm256_set1_epi64x(base);
  const __m256i reverse =
      _mm256_broadcastsi128_si256(_mm_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  const __m256i low_halves = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  size_t i = 0;
  if (!layout.sign_extend) {
    for (; i + 4 <= n; i += 4) {
      const __m256i bit = _mm256_add_epi64(first, load(layout.offset + i)), at_bit = _mm256_srli_epi64(bit, 3);
      const __m256i byte = _mm256_blendv_epi8(at_bit, last, _mm256_cmpgt_epi64(at_bit, last));
      const __m256i skipped = _mm256_sub_epi64(bit, _mm256_slli_epi64(byte, 3));
      const __m256i eight = _mm256_i64gather_epi64(reinterpret_cast<const long long*>(row), byte, 1);
      const __m256i top = layout.lsb_first ? _mm256_sllv_epi64(eight, _mm256_sub_epi64(down, skipped))
                                           : _mm256_sllv_epi64(_mm256_shuffle_epi8(eight, reverse), skipped);
      const __m256i value = _mm256_permutevar8x32_epi32(_mm256_srlv_epi64(top, down), low_halves);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_castsi256_si128(value));
    }
  }
  if (i == n) return;
  FieldLayout rest = layout;
  rest.offset += i;
  fields(rest, row, base, out + i, n - i);
}

consteval Kernels table() {
  Kernels kernels = common("avx2");
  use_x86(kernels);
  kernels.fields = gather_fields;
  kernels.lanes = 32;
  kernels.window = kernels.small_window = 16;
  kernels.bits[0] = bits<uint8_t>;
  kernels.bits[1] = bits<uint16_t>;
  kernels.bits[2] = bits<uint32_t>;
  kernels.bits[3] = bits<uint64_t>;
  return kernels;
}

}  // namespace avx2

constexpr Kernels kernels_avx2 = avx2::table();

}  // namespace feedline::unpack
