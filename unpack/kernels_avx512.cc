// Kernels for AVX-512 F, BW, DQ, VL and VBMI.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12's own headers (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <array>

#include "unpack/cast.h"
#include "unpack/kernels.h"

namespace feedline::unpack {
namespace avx512 {

inline __m512i load(const void* p) { return _mm512_loadu_si512(p); }

// A shuffle of bytes: says for each of 64 result bytes which of the 192 bytes of three vectors it gets. `last` is the
// mask of the result bytes that come from the third vector.
struct PickOf192 {
  alignas(64) uint8_t index[64] = {};
  uint64_t last = 0;
  consteval void set(size_t lane, size_t from) {
    index[lane] = static_cast<uint8_t>(from % 128);
    if (from >= 128) last |= uint64_t{1} << lane;
  }
};
inline __m512i pick_of_192(const PickOf192& pick, __m512i a, __m512i b, __m512i c) {
  const __m512i index = load(pick.index);
  return _mm512_mask_permutexvar_epi8(_mm512_permutex2var_epi8(a, index, b), pick.last, index, c);
}
consteval PickOf192 pick_thirds() {
  PickOf192 pick;
  for (size_t i = 0; i < 64; i++) pick.set(i, 3 * i);
  return pick;
}
constexpr PickOf192 thirds_pick = pick_thirds();
consteval PickOf192 triples_pick(size_t part) {
  PickOf192 pick;
  for (size_t i = 0; i < 64; i++) pick.set(i, (64 * part + i) % 3 * 64 + (64 * part + i) / 3);
  return pick;
}
constexpr PickOf192 triples_picks[3] = {triples_pick(0), triples_pick(1), triples_pick(2)};

inline size_t thirds(const std::byte* in, std::byte* out, size_t n) {
  size_t i = 0;
  for (; i + 64 <= n; i += 64, in += 192) {
    const __m512i c = _mm512_maskz_loadu_epi8(~__mmask64{0} >> 2, in + 128);  // reads nothing beyond the last element
    _mm512_storeu_si512(out + i, pick_of_192(thirds_pick, load(in), load(in + 64), c));
  }
  return i;
}
inline size_t triples(const std::byte* in, int64_t stride, std::byte* out, size_t n) {
  size_t i = 0;
  for (; i + 64 <= n; i += 64, in += 64, out += 192) {
    const __m512i a = load(in), b = load(in + stride), c = load(in + 2 * stride);
    for (size_t part = 0; part < 3; part++)
      _mm512_storeu_si512(out + 64 * part, pick_of_192(triples_picks[part], a, b, c));
  }
  return i;
}

#include "unpack/kernels_common.h"
#include "unpack/kernels_x86.h"

// --- single bits ---
//
// 64 source bytes are spread over 64 lanes, each is tested for its bit, and the 64 results choose between two vectors.
// If 16 bytes hold all that a block needs (`small`), they are loaded into each quarter of a vector, which is cheaper to
// load and to shuffle. Then the stores limit the speed, as long as few loads come between them. So a table of zeros is
// not loaded, and recipes that repeat along a row stay in registers.

inline __mmask64 first_lanes(uint64_t n) { return n >= 64 ? ~__mmask64{0} : (__mmask64{1} << n) - 1; }

// A block's recipe (see BitLayout) in registers.
template <typename T, bool small, bool low_is_zero>
class Recipe {
 public:
  Recipe() = default;
  explicit Recipe(const BitLayout::Block& block) : pick_(load(block.recipe)), bit_(load(block.recipe + 64)) {
    const std::byte *high = block.recipe + 128, *low = high + 64 * sizeof(T);
    for (size_t v = 0; v < sizeof(T); v++) {
      high_[v] = load(high + 64 * v);
      low_[v] = low_is_zero ? _mm512_setzero_si512() : load(low + 64 * v);
    }
  }

  // Returns the bits of a block in a row, one for each lane.
  uint64_t ones(const BitLayout& layout, const BitLayout::Block& block, const std::byte* row) const {
    if constexpr (small) {
      return ones(row + block.byte);
    } else {
      __m512i bytes = _mm512_permutexvar_epi8(pick_, load(row + block.byte));
      for (uint32_t i = 0; i < block.more_windows; i++) {
        const BitLayout::Window& window = layout.windows[block.more + i];
        const __m512i more = load(window.picks);
        const __mmask64 mine = _knot_mask64(_mm512_movepi8_mask(more));
        bytes = _mm512_mask_permutexvar_epi8(bytes, mine, more, load(row + window.byte));
      }
      return _mm512_test_epi8_mask(bytes, bit_);
    }
  }

  // Returns the bits of a block that has only one window, of 16 bytes.
  uint64_t ones(const std::byte* window) const {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(window));
    return _mm512_test_epi8_mask(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), pick_), bit_);
  }

  // Returns vector v of the block's output.
  __m512i values(uint64_t ones, size_t v) const {
    ones >>= v * (64 / sizeof(T));
    if constexpr (sizeof(T) == 1) return _mm512_mask_mov_epi8(low_[v], ones, high_[v]);
    if constexpr (sizeof(T) == 2) return _mm512_mask_mov_epi16(low_[v], static_cast<__mmask32>(ones), high_[v]);
    if constexpr (sizeof(T) == 4) return _mm512_mask_mov_epi32(low_[v], static_cast<__mmask16>(ones), high_[v]);
    if constexpr (sizeof(T) == 8) return _mm512_mask_mov_epi64(low_[v], static_cast<__mmask8>(ones), high_[v]);
  }

 private:
  __m512i pick_, bit_, high_[sizeof(T)], low_[sizeof(T)];
};

template <typename T, bool small, bool low_is_zero>
void write_block(const Recipe<T, small, low_is_zero>& recipe, uint64_t ones, std::byte* to) {
#pragma GCC unroll 8
  for (size_t v = 0; v < sizeof(T); v++) _mm512_storeu_si512(to + 64 * v, recipe.values(ones, v));
}

// The blocks at the beginning of a row whose recipes repeat. For these blocks only the row itself is loaded, because
// their recipes stay in registers.
template <typename T, bool low_is_zero, size_t period>
struct Repeated {
  explicit Repeated(const BitLayout& layout) : blocks(period > 0 ? layout.repeated : 0), step(layout.repeated_bytes) {
    for (size_t p = 0; p < period; p++) {
      recipes[p] = Recipe<T, true, low_is_zero>(layout.blocks[p]);
      byte[p] = static_cast<ptrdiff_t>(layout.blocks[p].byte);
    }
  }
  void write(const std::byte* row, std::byte* to) const {
    ptrdiff_t at = 0;
    for (size_t done = 0; done < blocks; done += period, at += step) {
#pragma GCC unroll 8
      for (size_t p = 0; p < period; p++, to += 64 * sizeof(T))
        write_block(recipes[p], recipes[p].ones(row + (at + byte[p])), to);
    }
  }
  size_t blocks;
  ptrdiff_t step;
  std::array<ptrdiff_t, period> byte;
  std::array<Recipe<T, true, low_is_zero>, period> recipes;
};

template <typename T, bool small, bool low_is_zero, size_t period>
void bits_of(const BitLayout layout, const std::byte* const* rows, size_t n, std::byte* out, size_t out_stride) {
  using Recipe = Recipe<T, small, low_is_zero>;
  const size_t rest = layout.elements % 64 * sizeof(T);
  const Repeated<T, low_is_zero, period> repeated(layout);
  const BitLayout::Block* const last = layout.blocks + layout.elements / 64;

  for (size_t i = 0; i < n; i++, out += out_stride) {
    const std::byte* row = rows[i];
    alignas(64) std::byte padded[64];
    if (layout.row_bytes < layout.window) {
      _mm512_store_si512(padded, _mm512_maskz_loadu_epi8(first_lanes(layout.row_bytes), row));
      row = padded;
    }
    repeated.write(row, out);
    std::byte* to = out + repeated.blocks * 64 * sizeof(T);
    for (const BitLayout::Block* next = layout.blocks + repeated.blocks; next < last; next++, to += 64 * sizeof(T)) {
      const BitLayout::Block block = *next;  // a copy, like `layout`, so that no store through `to` can change it
      const Recipe recipe(block);
      write_block(recipe, recipe.ones(layout, block, row), to);
    }
    if (rest == 0) continue;
    const Recipe recipe(*last);
    const uint64_t ones = recipe.ones(layout, *last, row);
    for (size_t v = 0; 64 * v < rest; v++)
      _mm512_mask_storeu_epi8(to + 64 * v, first_lanes(rest - 64 * v), recipe.values(ones, v));
  }
}

template <typename T, bool low_is_zero>
void bits_of_small(const BitLayout& layout, const std::byte* const* rows, size_t n, std::byte* out, size_t out_stride) {
  constexpr bool three_fit = 3 * (2 + sizeof(T) * (low_is_zero ? 1 : 2)) < 28;  // three recipes fit the 32 registers
  if (layout.period == 1)
    bits_of<T, true, low_is_zero, 1>(layout, rows, n, out, out_stride);
  else if (three_fit && layout.period == 3)
    bits_of<T, true, low_is_zero, three_fit ? 3 : 0>(layout, rows, n, out, out_stride);
  else
    bits_of<T, true, low_is_zero, 0>(layout, rows, n, out, out_stride);
}

template <typename T>
void bits(const BitLayout& layout, const std::byte* const* rows, size_t n, std::byte* out, size_t out_stride) {
  const bool small = layout.window == 16, zero = layout.low_is_zero;
  if (small && zero)
    bits_of_small<T, true>(layout, rows, n, out, out_stride);
  else if (small)
    bits_of_small<T, false>(layout, rows, n, out, out_stride);
  else if (zero)
    bits_of<T, false, true, 0>(layout, rows, n, out, out_stride);
  else
    bits_of<T, false, false, 0>(layout, rows, n, out, out_stride);
}

// --- bytes by tables ---

// An order of source bytes. The unpack instructions interleave bytes, and then pairs of bytes, inside 16-byte parts. If
// the source bytes are in this order, these instructions give consecutive elements of T.
template <typename T>
struct LookupOrder {
  alignas(64) uint8_t index[64];
  constexpr LookupOrder() : index() {
    constexpr size_t vectors = sizeof(T), in_part = 16 / vectors, in_vector = 64 / vectors;
    for (size_t part = 0; part < 4; part++)
      for (size_t vector = 0; vector < vectors; vector++)
        for (size_t k = 0; k < in_part; k++)
          index[16 * part + in_part * vector + k] = static_cast<uint8_t>(in_vector * vector + in_part * part + k);
  }
};
template <typename T>
constexpr LookupOrder<T> lookup_order;

// Returns the entries of a table of 256 bytes for 64 indexes. `upper` is the mask of the indexes from 128 on.
inline __m512i looked_up(__m512i bytes, __mmask64 upper, const __m512i* plane) {
  return _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(plane[0], bytes, plane[1]),
                                _mm512_permutex2var_epi8(plane[2], bytes, plane[3]));
}

template <typename T>
void lookup(const std::byte* in, std::byte* out, size_t n, const std::byte* table) {
  __m512i planes[sizeof(T)][4];
  for (size_t i = 0; i < sizeof(T); i++)
    for (size_t k = 0; k < 4; k++) planes[i][k] = load(table + 256 * i + 64 * k);
  const __m512i order = load(lookup_order<T>.index);
  for (size_t i = 0; i < n; i += 64, in += 64, out += 64 * sizeof(T)) {
    const size_t left = (n - i) * sizeof(T);
    const __m512i bytes = _mm512_permutexvar_epi8(order, _mm512_maskz_loadu_epi8(first_lanes(n - i), in));
    const __mmask64 upper = _mm512_movepi8_mask(bytes);
    __m512i entries[sizeof(T)], plane[sizeof(T)];
    for (size_t p = 0; p < sizeof(T); p++) plane[p] = looked_up(bytes, upper, planes[p]);
    if constexpr (sizeof(T) == 1) {
      entries[0] = plane[0];
    } else if constexpr (sizeof(T) == 2) {
      entries[0] = _mm512_unpacklo_epi8(plane[0], plane[1]);
      entries[1] = _mm512_unpackhi_epi8(plane[0], plane[1]);
    } else {
      const __m512i a = _mm512_unpacklo_epi8(plane[0], plane[1]), b = _mm512_unpacklo_epi8(plane[2], plane[3]);
      const __m512i c = _mm512_unpackhi_epi8(plane[0], plane[1]), d = _mm512_unpackhi_epi8(plane[2], plane[3]);
      entries[0] = _mm512_unpacklo_epi16(a, b);
      entries[1] = _mm512_unpackhi_epi16(a, b);
      entries[2] = _mm512_unpacklo_epi16(c, d);
      entries[3] = _mm512_unpackhi_epi16(c, d);
    }
    if (n - i >= 64)
      for (size_t v = 0; v < sizeof(T); v++) _mm512_storeu_si512(out + 64 * v, entries[v]);
    else
      for (size_t v = 0; 64 * v < left; v++)
        _mm512_mask_storeu_epi8(out + 64 * v, first_lanes(left - 64 * v), entries[v]);
  }
}

// --- fields of several bits ---
//
// Does what fields() of kernels_common.h does, eight fields at a time.

inline void gather_fields(const FieldLayout& layout, const std::byte* row, int64_t base, uint32_t* out, size_t n) {
  const __m512i last = _mm512_set1_epi64(static_cast<int64_t>(layout.row_bytes) - 8);
  const __m512i down = _mm512_set1_epi64(64 - layout.width), first = _mm512_set1_epi64(base);
  const __m512i reverse = _mm512_broadcast_i32x4(_mm_set_epi8(8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m512i bit = _mm512_add_epi64(first, load(layout.offset + i));
    const __m512i byte = _mm512_min_epi64(_mm512_srli_epi64(bit, 3), last);
    const __m512i skipped = _mm512_sub_epi64(bit, _mm512_slli_epi64(byte, 3));
    const __m512i eight = _mm512_i64gather_epi64(byte, row, 1);
    const __m512i top = layout.lsb_first ? _mm512_sllv_epi64(eight, _mm512_sub_epi64(down, skipped))
                                         : _mm512_sllv_epi64(_mm512_shuffle_epi8(eight, reverse), skipped);
    const __m512i value = layout.sign_extend ? _mm512_srav_epi64(top, down) : _mm512_srlv_epi64(top, down);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtepi64_epi32(value));
  }
  if (i == n) return;
  FieldLayout rest = layout;
  rest.offset += i;
  fields(rest, row, base, out + i, n - i);
}

inline void stream_lines(const std::byte* in, std::byte* out, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) _mm512_stream_si512(reinterpret_cast<__m512i*>(out + i), load(in + i));
}

consteval Kernels table() {
  Kernels kernels = common("avx512");
  use_x86(kernels);
  kernels.stream = stream_lines;
  kernels.small_window = 16;
  kernels.fields = gather_fields;
  kernels.lookup[0] = lookup<uint8_t>;
  kernels.lookup[1] = lookup<uint16_t>;
  kernels.lookup[2] = lookup<uint32_t>;
  kernels.bits[0] = bits<uint8_t>;
  kernels.bits[1] = bits<uint16_t>;
  kernels.bits[2] = bits<uint32_t>;
  kernels.bits[3] = bits<uint64_t>;
  return kernels;
}

}  // namespace avx512

constexpr Kernels kernels_avx512 = avx512::table();

}  // namespace feedline::unpack
