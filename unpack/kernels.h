// The inner loops of unpacking, which are compiled once for each SIMD level, and the plain data that they work on.
//
// This header contains no code. The sources of the levels share kernels_common.h, which each includes into a namespace
// of its own. So the linker cannot pick a function that was compiled for a newer CPU than the one it runs on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "feedline/tensor.h"

namespace feedline {
enum class SimdLevel : uint8_t;
}

namespace feedline::unpack {

/// The maximum number of elements that are gathered, computed and cast in one go, as one tile, in the L1 cache.
inline constexpr size_t tile_elements = 512;

/// The parameters of a step (scale and bias, or normalize). Each array has a value for every element, or, if `uniform`,
/// one value for all elements.
struct StepArrays {
  const float* scale;
  const float* bias_or_mean;
  const float* std;
  bool uniform;
};

/// The bit fields of a tile: out[i] is the field at bit `base + offset[i]` of the row.
struct FieldLayout {
  int width;  // bits
  bool sign_extend, lsb_first;
  uint64_t row_bytes;     // how many bytes of a row may be read; at least 8
  const int64_t* offset;  // bits
};

/// The layout of an output whose elements are made from single bits. Each bit chooses between two values.
///
/// The elements of a row are processed in blocks of Kernels::lanes elements; lane i is element i of its block. The last
/// block is padded with elements that are computed but not stored. The source bytes of a block are loaded from one or
/// more windows. A window is `window` consecutive bytes of the row that begin at `byte`. It ends inside the row, unless
/// the row is shorter than a window.
///
/// The constants of a block are its recipe: four tables, one after another, each with an entry for each lane:
///   1. the shuffle index: which byte of the first window the lane gets (128: none, the lane gets 0)
///   2. the mask of the bit to test
///   3. the value if the bit is 1
///   4. the value if the bit is 0
/// Each further window of a block has a table of shuffle indexes of its own (its picks). Blocks with equal recipes
/// share one recipe. Recipes and picks are aligned to 32 bytes, and to 64 bytes if a block has 64 lanes.
struct BitLayout {
  struct Block {
    uint64_t byte;  // where the block's first window begins in the row
    const std::byte* recipe;
    uint32_t more, more_windows;  // the block's further windows: where they begin in `windows`, and how many there are
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
  // The recipes of the first `repeated` blocks repeat; `repeated` is a multiple of `period`, or 0. Among these blocks,
  // each block b >= period has the recipe of block b - period. The window of block b begins `repeated_bytes` behind the
  // window of block b - period, or before it if `repeated_bytes` is negative.
  size_t period = 0, repeated = 0;
  ptrdiff_t repeated_bytes = 0;
  bool one_window = false;   // every block has only one window
  bool low_is_zero = false;  // all values that a bit 0 chooses consist of zero bytes
};

/// The inner loops of one SIMD level.
struct Kernels {
  const char* level;  // "portable", "avx2" or "avx512"

  /// Casts n consecutive elements by the table of casts. Neither `in` nor `out` needs to be aligned.
  using Cast = void (*)(const std::byte* in, std::byte* out, size_t n);
  Cast cast[dtype_count][dtype_count];

  /// Computes a step (scale and bias, or normalize) on n values in place.
  using Step = void (*)(float* x, size_t n, const StepArrays& steps);
  Step affine, normalize;

  /// Casts n bytes to float32, normalizes them and casts the results, in one loop. Indexed by the dtype of the results:
  /// FLOAT32, FLOAT16 or BFLOAT16; null for all other dtypes.
  using NormalizeBytes = void (*)(const std::byte* in, std::byte* out, size_t n, const StepArrays& steps);
  NormalizeBytes normalize_bytes[dtype_count];

  /// Writes to out[i] the entry number in[i] of a table with 256 entries. The table lies in planes: the first bytes of
  /// all entries, then the second bytes of all entries, ... Indexed by the binary logarithm of the entry's size; null
  /// if the level computes faster without a table.
  using Lookup = void (*)(const std::byte* in, std::byte* out, size_t n, const std::byte* table);
  Lookup lookup[4];

  // Gather elements into consecutive memory. The arrays are indexed by the binary logarithm of the element's size.
  // Strides and offsets are in bytes.
  /// out[i] = the element at in + i * stride.
  void (*strided[4])(const std::byte* in, int64_t stride, std::byte* out, size_t n);
  /// out[i * channels + c] = the i-th of the elements that begin at in + c * stride. n is the number of all elements, a
  /// multiple of `channels`.
  void (*interleave[4])(const std::byte* in, int64_t stride, size_t channels, std::byte* out, size_t n);
  /// out[i] = the element at in + offset[i].
  void (*scattered[4])(const std::byte* in, const int64_t* offset, std::byte* out, size_t n);
  /// out[i] = the element at in[i] + offset.
  void (*from_rows[4])(const std::byte* const* in, int64_t offset, std::byte* out, size_t n);
  /// Copies `bytes` bytes from in[i] + offset to out + i * stride, for each i < n. Nothing overlaps.
  void (*copy_rows)(const std::byte* const* in, int64_t offset, size_t bytes, std::byte* out, size_t stride, size_t n);
  /// Reverses the bytes of each element; `out` may be `in`.
  void (*swap[4])(const std::byte* in, std::byte* out, size_t n);

  /// Copies with stores that bypass the caches. `out` and `bytes` are multiples of 64. The caller must call fence()
  /// before other threads read `out`.
  void (*stream)(const std::byte* in, std::byte* out, size_t bytes);
  void (*fence)();

  /// Reads n bit fields: see FieldLayout.
  void (*fields)(const FieldLayout& layout, const std::byte* row, int64_t base, uint32_t* out, size_t n);

  /// Sizes for BitLayout. `lanes`: the elements of a block. `window`: the bytes of a window. `small_window`: the bytes
  /// of a smaller window, for layouts whose blocks need only one window each; equal to `window` if this SIMD level has
  /// none.
  size_t lanes, window, small_window;
  /// Unpacks n rows of single bits. Indexed by the binary logarithm of the output element's size.
  using Bits = void (*)(const BitLayout& layout, const std::byte* const* rows, size_t n, std::byte* out,
                        size_t out_stride);
  Bits bits[4];
};

extern const Kernels kernels_portable, kernels_avx2, kernels_avx512;

const Kernels& kernels_for(SimdLevel level);

}  // namespace feedline::unpack
