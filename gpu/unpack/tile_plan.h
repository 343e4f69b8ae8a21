// Everything but single bits: a row is cut into tiles that fit the L1 cache; the elements of a tile are gathered one
// after another (where they do not lie so already), computed on in float32, and cast.
//
// A tile is the last axes whole (its body), some indices of the axis before them (the cut), and one index of each axis
// further out. Rows that are smaller than a tile share one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gpu/unpack/aligned.h"
#include "gpu/unpack/kernels.h"
#include "gpu/unpack/unpack_layout.h"

namespace feedline::gpu {

class TilePlan {
 public:
  /// stores: where rows are so long and lie so that it pays, see Stores.
  TilePlan(const UnpackSpec& spec, const Layout& layout, const Kernels& kernels, Stores stores);

  void run(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride) const noexcept;

  bool copies_rows() const noexcept { return copies_rows_; }
  /// Whether it writes past the caches.
  bool streams() const noexcept { return streams_; }

  /// How the elements of a tile are gathered, and what is done with them.
  std::string name() const;

 private:
  enum class Gather : uint8_t { none, strided, interleave, scattered, fields };
  struct Arrays {
    aligned_vector<float> scale, bias_or_mean, std;
    StepArrays from(size_t first, bool uniform) const noexcept {
      return {scale.data() + first, bias_or_mean.data() + first, std.data() + first, uniform};
    }
  };

  std::vector<Axis> cut_rows(const Layout& layout, bool as_it_lies);
  std::vector<int64_t> list_elements(const Layout& layout, const std::vector<Axis>& inside, int64_t unit_bits);
  void fill_arrays(const UnpackSpec& spec, const std::vector<int64_t>& channels);
  void find_pattern(int64_t channels);
  void make_lookup_tables(const UnpackSpec& spec, DType stored, size_t channels);

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
  Kernels::NormalizeBytes normalize_bytes_ = nullptr;  // all three, where there is one
  Kernels::Lookup lookup_ = nullptr;                   // all three by table
  aligned_vector<std::byte> lookup_tables_;            // of each channel that a tile may have
  size_t stored_size_, out_size_;
  int log_size_;  // of stored
  bool swap_;
  bool copies_;               // a gathered element is the output's
  bool copies_rows_ = false;  // a row is, as it lies
  bool streams_ = false;      // tiles are written past the cache

  // Tiles.
  int64_t base_;  // bits
  uint64_t row_bytes_;
  size_t row_elements_;
  std::vector<Axis> outer_;
  std::vector<int64_t> outer_offset_;  // bits, for each index of an outer channel axis
  Axis cut_{1, 0};
  int64_t step_ = 1;  // indices of the cut in a tile
  size_t body_ = 1;   // elements
  size_t rows_in_tile_ = 1;

  // Gather.
  Gather gather_ = Gather::none;
  int64_t gather_stride_ = 0;   // bytes
  size_t channels_ = 1;         // of interleave
  bool table_has_cut_ = false;  // an entry for every index of the cut, not of one tile
  std::vector<int64_t> table_;  // from the tile's base: bytes; bits of fields
  FieldLayout fields_{};

  // ChannelMath.
  bool affine_ = false, normalize_ = false;
  bool uniform_ = true;       // the same parameters in the whole tile; one for each outer channel
  bool outer_steps_ = false;  // ""
  bool arrays_have_cut_ = false;
  Arrays affine_arrays_, normalize_arrays_;
};

}  // namespace feedline::gpu
