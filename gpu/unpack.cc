#include "gpu/unpack.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "base/float_environment.h"
#include "gpu/bit_plan.h"
#include "gpu/kernels.h"
#include "gpu/tile_plan.h"
#include "gpu/unpack_layout.h"

namespace feedline::gpu {
namespace {

const Kernels& kernels_for([[maybe_unused]] SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return kernels_avx512;
  if (level == SimdLevel::avx2) return kernels_avx2;
#endif
  return kernels_portable;
}

}  // namespace

struct Unpacker::Impl {
  UnpackSpec spec;
  size_t row_size;  // of the output, in bytes
  std::string kernel;
  std::optional<BitPlan> bits;
  std::optional<TilePlan> tiles;

  Impl(UnpackSpec valid, const Kernels& kernels, Stores stores)
      : spec(std::move(valid)),
        row_size(static_cast<size_t>(spec.shape.elements()) * size_of(spec.out)),
        kernel("empty") {
    if (row_size == 0) return;
    const DefaultFloatEnvironment floats;  // of values that are computed here
    const Layout layout(spec);
    const bool single_bits = spec.stored == DType::unset && spec.width == 1;
    if (single_bits)
      bits.emplace(spec, layout, kernels);
    else
      tiles.emplace(spec, layout, kernels, stores);
    kernel = fmt::format("{}/{}", single_bits ? "bits" : tiles->name(), kernels.level);
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
  if (impl_->bits) impl_->bits->run(rows, out, out_stride);
  if (impl_->tiles) impl_->tiles->run(rows, out, out_stride);
}

}  // namespace feedline::gpu
