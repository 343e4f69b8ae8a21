// Kernels for avx512.
#include "gpu/cast.h"
#include "gpu/kernels.h"

namespace feedline::gpu {
namespace avx512 {

#include "gpu/kernels_common.h"

// Windows of one byte, blocks of one lane.
template <typename T>
void bits(const BitLayout& layout, const std::byte* const* rows, size_t n, std::byte* out, size_t out_stride) {
  for (size_t row = 0; row < n; row++, out += out_stride) {
    for (size_t i = 0; i < layout.elements; i++) {
      const BitLayout::Block& block = layout.blocks[i];
      const uint8_t byte = static_cast<uint8_t>(rows[row][layout.windows[block.first_window].byte]);
      const std::byte* values = byte & layout.bits[block.bit] ? layout.high : layout.low;
      at<T>(out)[i] = at<T>(values)[block.value];
    }
  }
}

constexpr Kernels table() {
  Kernels kernels = common("avx512");
  kernels.bits[0] = bits<uint8_t>;
  kernels.bits[1] = bits<uint16_t>;
  kernels.bits[2] = bits<uint32_t>;
  kernels.bits[3] = bits<uint64_t>;
  return kernels;
}

}  // namespace avx512

constexpr Kernels kernels_avx512 = avx512::table();

}  // namespace feedline::gpu
