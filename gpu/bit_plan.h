// Outputs of single bits: each bit chooses between two values, computed beforehand by the definition. So every type,
// scale and bias costs the same, and is exact by construction.
#pragma once

#include <cstddef>
#include <vector>

#include "gpu/kernels.h"
#include "gpu/unpack_layout.h"

namespace feedline::gpu {

class BitPlan {
 public:
  BitPlan(const UnpackSpec& spec, const Layout& layout, const Kernels& kernels);

  void run(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride) const noexcept;

 private:
  void build(const UnpackSpec& spec, const Layout& layout, size_t lanes, size_t window);

  Kernels::Bits kernel_;
  std::vector<BitLayout::Block> blocks_;
  std::vector<BitLayout::Window> windows_;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> recipes_, picks_;  // aligned: a vector is loaded from one cache line
  BitLayout layout_;
};

}  // namespace feedline::gpu
