// Plans all outputs except single bits. A row is cut into tiles that fit the L1 cache. The elements of a tile are
// gathered into consecutive memory (unless they already are), the steps are computed in float32, and the result is
// cast.
//
// A tile has all indices of the last axes (its body), some indices of the axis before these (the cut), and one index of
// each axis before the cut (the outer axes). Small rows share a tile.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "unpack/aligned.h"
#include "unpack/kernels.h"
#include "unpack/unpack_layout.h"

namespace feedline::unpack {

class TilePlan {
 public:
  /// Precondition: the spec is valid, has elements, and its fields are not bit fields of width 1. `stores` is used only
  /// if rows are not small (see rows_in_tile_) and each output row begins at a cache line; otherwise stores are cached.
  TilePlan(const UnpackSpec& spec, const Layout& layout, const Kernels& kernels, Stores stores);

  /// Unpacks rows. Row i of the output begins at out + i * out_stride.
  void run(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride) const noexcept;

  /// Returns whether each output row is an unchanged copy of the stored row's bytes from the spec's bit_offset on.
  bool copies_rows() const noexcept { return copies_rows_; }
  /// Returns whether run() bypasses the caches.
  bool streams() const noexcept { return streams_; }

  /// Returns how the elements of a tile are gathered, and what is done with them: "strided normalize".
  std::string name() const;

 private:
  enum class Gather : uint8_t { none, strided, interleave, scattered, fields };
  struct Arrays {
    aligned_vector<float> scale, bias_or_mean, std;
    StepArrays from(size_t first, bool uniform) const noexcept {
      const float* const of_std = std.empty() ? nullptr : std.data() + first;  // an affine step has no std
      return {scale.data() + first, bias_or_mean.data() + first, of_std, uniform};
    }
  };

  std::vector<Axis> cut_rows(const Layout& layout, bool as_it_lies);
  std::vector<int64_t> list_elements(const Layout& layout, const std::vector<Axis>& inside, int64_t unit_bits);
  void fill_arrays(const UnpackSpec& spec, const std::vector<int64_t>& channels);
  void find_pattern(int64_t channels);
  void make_lookup_tables(const UnpackSpec& spec, size_t channels);

  template <bool streams>
  void run_row(const std::byte* row, std::byte* out) const noexcept;
  void stream(const std::byte* tile, std::byte* out, size_t bytes) const noexcept;
  void run_small_rows(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride) const noexcept;
  const std::byte* gather(const std::byte* row, int64_t base, size_t first, std::byte* scratch,
                          size_t n) const noexcept;
  void convert(const std::byte* in, std::byte* out, size_t n, size_t first) const noexcept;

  // Types.
  const Kernels* kernels_;
  Kernels::Cast cast_;                                 // stored -> out
  Kernels::Cast widen_;                                // stored -> float32
  Kernels::Cast round_;                                // float32 -> out
  Kernels::NormalizeBytes normalize_bytes_ = nullptr;  // widens, normalizes and rounds in one loop; may be null
  Kernels::Lookup lookup_ = nullptr;                   // does all steps and casts by a table; may be null
  aligned_vector<std::byte> lookup_tables_;            // the table of each channel that a tile may have
  size_t stored_size_, out_size_;                      // bytes of an element
  int log_size_;                                       // the binary logarithm of stored_size_
  bool swap_;                                          // the bytes of each stored element are reversed
  bool copies_;                                        // a gathered element is written unchanged
  bool copies_rows_ = false;                           // an output row is a copy of the stored bytes
  bool streams_ = false;                               // tiles are written with stores that bypass the caches

  // Tiles.
  int64_t base_;  // bits, as in Layout
  uint64_t row_bytes_;
  size_t row_elements_;
  std::vector<Axis> outer_;
  std::vector<int64_t> outer_offset_;  // bits, for each index of an outer channel axis
  Axis cut_{1, 0};
  int64_t step_ = 1;         // how many indices of the cut are in a tile
  size_t body_ = 1;          // how many elements the body has
  size_t rows_in_tile_ = 1;  // more than 1 for small rows that share a tile

  // Gather.
  Gather gather_ = Gather::none;
  int64_t gather_stride_ = 0;   // bytes
  size_t channels_ = 1;         // the number of channels of Gather::interleave
  bool table_has_cut_ = false;  // table_ has an entry for every index of the cut, not only for those of one tile
  std::vector<int64_t> table_;  // where each element lies after the tile's base: in bytes, or in bits for fields
  FieldLayout fields_{};

  // Steps.
  bool affine_ = false, normalize_ = false;
  bool uniform_ = true;           // the parameters are the same in the whole tile
  bool outer_steps_ = false;      // the arrays have one entry for each index of an outer channel axis
  bool arrays_have_cut_ = false;  // the arrays have an entry for every index of the cut, not only for those of one tile
  Arrays affine_arrays_, normalize_arrays_;
};

}  // namespace feedline::unpack
