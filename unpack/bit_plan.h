// Plans outputs of single bits. Each bit chooses between two values, which are computed beforehand by the definition of
// unpacking (unpack_spec.h). So every type, scale and bias costs the same, and is exact by construction.
#pragma once

#include <cstddef>
#include <vector>

#include "unpack/aligned.h"
#include "unpack/kernels.h"
#include "unpack/unpack_layout.h"

namespace feedline::unpack {

class BitPlan {
 public:
  /// Precondition: the spec is valid, has elements, and its fields are bit fields of width 1.
  BitPlan(const UnpackSpec& spec, const Layout& layout, const Kernels& kernels);

  /// Unpacks rows. Row i of the output begins at out + i * out_stride.
  void run(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride) const noexcept;

 private:
  void build(const UnpackSpec& spec, const Layout& layout, size_t lanes, size_t window);

  Kernels::Bits kernel_;
  std::vector<BitLayout::Block> blocks_;
  std::vector<BitLayout::Window> windows_;
  aligned_vector<char> recipes_, picks_;
  BitLayout layout_;
};

}  // namespace feedline::unpack
