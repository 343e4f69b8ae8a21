// The inner loops of unpacking, compiled once for each SIMD level, and the plain data that they work on.
//
// Nothing here has code of its own: what the sources of the levels share they include into a namespace of their own
// (kernels_common.h), so that no linker can pick a function compiled for a newer CPU than the one it runs on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/machine.h"
#include "feedline/tensor.h"

namespace feedline::gpu {

/// Elements of a tile: what is gathered, computed and cast in one go, in the L1 cache.
inline constexpr size_t tile_elements = 512;

/// Parameters of a step, element by element; one for all where `uniform`.
struct StepArrays {
  const float* scale;
  const float* bias_or_mean;
  const float* std;
  bool uniform;
};

/// Bit fields of a tile: out[i] = the field at bit `base + offset[i]`.
struct FieldLayout {
  int width;
  bool sign_extend, lsb_first;
  uint64_t row_bytes;     // at least 8: a row may be read up to here
  const int64_t* offset;  // bits
};

/// Single bits that choose between two values each. Elements come in blocks of `lanes`, the last one filled up with
/// elements that are computed but not stored. A block's source bytes are picked from windows of the row: `window` bytes
/// that begin at `byte` and end inside the row, unless the row is shorter.
///
/// A block's recipe is four tables, one after another, with an entry for each lane: which byte of the first window goes
/// there (128: none); a byte with the one bit set that is looked at; the values for 1; the values for 0. A table of
/// picks for a further window is like the first. Blocks share recipes. Recipes and picks are aligned to 32 and, where
/// lanes are 64, to 64 bytes.
struct BitLayout {
  struct Block {
    uint64_t byte;
    const std::byte* recipe;
    uint32_t more, more_windows;  // the windows after the first: where they begin in `windows`, and how many
  };
  struct Window {
    uint64_t byte;
    const std::byte* picks;
  };
  size_t elements = 0;
  uint64_t row_bytes = 0;
  size_t window = 0;
  const Block* blocks = nullptr;
  const Window* windows = nullptr;
  // The first `repeated` blocks, a multiple of the period, have the recipes of those `period` before them, with windows
  // that begin `repeated_bytes` later; 0: none do.
  size_t period = 0, repeated = 0, repeated_bytes = 0;
  bool one_window = false;   // each block has no more
  bool low_is_zero = false;  // all values for 0, in all their bytes
};

struct Kernels {
  const char* level;

  /// n elements at `in`, one after another, each through the table of casts. Neither side need be aligned.
  using Cast = void (*)(const std::byte* in, std::byte* out, size_t n);
  Cast cast[dtype_count][dtype_count];

  /// In place.
  using Step = void (*)(float* x, size_t n, const StepArrays& steps);
  Step affine, normalize;

  /// From uint8 straight to an element type (float32, float16 or bfloat16; else null).
  using NormalizeBytes = void (*)(const std::byte* in, std::byte* out, size_t n, const StepArrays& steps);
  NormalizeBytes normalize_bytes[dtype_count];

  /// out[i] = the entry number in[i] of a table of 256. The table lies in planes: the first bytes of all entries, then
  /// the second ones, ... Null where computing is faster. Indexed by the logarithm of the entry's size.
  using Lookup = void (*)(const std::byte* in, std::byte* out, size_t n, const std::byte* table);
  Lookup lookup[4];

  // Gather into consecutive elements. Indexed by the logarithm of the element's size.
  /// out[i] = the element at in + i * stride.
  void (*strided[4])(const std::byte* in, int64_t stride, std::byte* out, size_t n);
  /// out[i * channels + c] = the element number i at in + c * stride; n = elements, a multiple of channels.
  void (*interleave[4])(const std::byte* in, int64_t stride, size_t channels, std::byte* out, size_t n);
  /// out[i] = the element at in + offset[i].
  void (*scattered[4])(const std::byte* in, const int64_t* offset, std::byte* out, size_t n);
  /// out[i] = the element at in[i] + offset.
  void (*from_rows[4])(const std::byte* const* in, int64_t offset, std::byte* out, size_t n);
  /// out + i * stride = the bytes at in[i] + offset. Nothing overlaps.
  void (*copy_rows)(const std::byte* const* in, int64_t offset, size_t bytes, std::byte* out, size_t stride, size_t n);
  /// Reverses the bytes of each element; `out` may be `in`.
  void (*swap[4])(const std::byte* in, std::byte* out, size_t n);

  /// Copies past the cache; `out` and bytes are multiples of 64. Whoever does it fences before others read `out`.
  void (*stream)(const std::byte* in, std::byte* out, size_t bytes);
  void (*fence)();

  void (*fields)(const FieldLayout& layout, const std::byte* row, int64_t base, uint32_t* out, size_t n);

  /// For BitLayout: elements of a block; bytes of a window, and of a smaller one for layouts where one is enough for
  /// each block (else the same).
  size_t lanes, window, small_window;
  using Bits = void (*)(const BitLayout& layout, const std::byte* const* rows, size_t n, std::byte* out,
                        size_t out_stride);
  Bits bits[4];
};

extern const Kernels kernels_portable, kernels_avx2, kernels_avx512;

}  // namespace feedline::gpu
