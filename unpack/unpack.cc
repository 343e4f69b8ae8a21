#include "unpack/unpack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>

#include "base/float_environment.h"
#include "unpack/bit_plan.h"
#include "unpack/kernels.h"
#include "unpack/tile_plan.h"
#include "unpack/unpack_layout.h"

namespace feedline::unpack {
const Kernels& kernels_for([[maybe_unused]] SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return kernels_avx512;
  if (level == SimdLevel::avx2) return kernels_avx2;
#endif
  return kernels_portable;
}

constexpr size_t line = 64;                  // bytes of a cache line
constexpr size_t tile_bytes = 16 << 10;      // at most half of the first-level cache
constexpr size_t fewest_streamed = 1 << 10;  // bytes; streaming fewer is not worth a fence

struct Unpacker::Impl {
  UnpackSpec spec;
  const Kernels& kernels;
  size_t row_size;  // bytes of an output row
  // The number of rows that are unpacked into a tile and then streamed; together they fill whole cache lines. 0 if no
  // rows are streamed here: because streaming is not wanted, because the plan streams by itself, or because no number
  // of rows that fills whole cache lines fits a tile.
  size_t rows_in_tile = 0;
  std::string kernel;
  std::optional<BitPlan> bits;
  std::optional<TilePlan> tiles;

  Impl(UnpackSpec valid, const Kernels& of_level, Stores stores)
      : spec(std::move(valid)),
        kernels(of_level),
        row_size(static_cast<size_t>(spec.shape.elements()) * size_of(spec.out)),
        kernel("empty") {
    if (row_size == 0) return;
    const DefaultFloatEnvironment floats;  // for the tables of values that are computed here
    const Layout layout(spec);
    const bool single_bits = spec.stored == DType::unset && spec.width == 1;
    if (single_bits)
      bits.emplace(spec, layout, kernels);
    else
      tiles.emplace(spec, layout, kernels, stores);
    kernel = fmt::format("{}/{}", single_bits ? "bits" : tiles->name(), kernels.level);
    if (stores != Stores::streaming || (tiles && tiles->streams() && row_size % line == 0)) return;
    const size_t fewest = line / std::gcd(line, row_size);
    rows_in_tile = tile_bytes / row_size / fewest * fewest;
  }

  void run(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride) const noexcept {
    if (bits) bits->run(rows, out, out_stride);
    if (tiles) tiles->run(rows, out, out_stride);
  }

  // Unpacks contiguous rows into tiles and streams the tiles. `out` is the beginning of a cache line. If the last row
  // ends within a cache line, ordinary stores write that part of the line.
  void stream(std::span<const std::byte* const> rows, std::byte* out) const noexcept {
    alignas(line) std::byte tile[tile_bytes];
    while (!rows.empty()) {
      const size_t count = std::min(rows.size(), rows_in_tile), bytes = count * row_size;
      run(rows.first(count), tile, row_size);
      const size_t lines = bytes - bytes % line;
      kernels.stream(tile, out, lines);
      std::memcpy(out + lines, tile + lines, bytes - lines);
      rows = rows.subspan(count);
      out += bytes;
    }
    kernels.fence();
  }
};

Unpacker::Unpacker(UnpackSpec spec, SimdLevel level, Stores stores) {
  validate(spec);
  impl_ = std::make_unique<Impl>(std::move(spec), kernels_for(level), stores);
}
Unpacker::~Unpacker() = default;
Unpacker::Unpacker(Unpacker&&) noexcept = default;
Unpacker& Unpacker::operator=(Unpacker&&) noexcept = default;

const UnpackSpec& Unpacker::spec() const noexcept { return impl_->spec; }
bool Unpacker::is_copy() const noexcept { return impl_->tiles && impl_->tiles->copies_rows(); }
const char* Unpacker::kernel() const noexcept { return impl_->kernel.c_str(); }

void Unpacker::operator()(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride) const noexcept {
  if (out_stride == 0) out_stride = impl_->row_size;
  const bool streams = impl_->rows_in_tile > 0 && out_stride == impl_->row_size &&
                       rows.size() * out_stride >= fewest_streamed && reinterpret_cast<uintptr_t>(out) % line == 0;
  streams ? impl_->stream(rows, out) : impl_->run(rows, out, out_stride);
}

}  // namespace feedline::unpack
