// Kernels for any CPU.
#include "unpack/cast.h"
#include "unpack/kernels.h"

namespace feedline::unpack {
namespace portable {

inline size_t thirds(const std::byte*, std::byte*, size_t) { return 0; }
inline size_t triples(const std::byte*, int64_t, std::byte*, size_t) { return 0; }

#include "unpack/kernels_common.h"

// The bytes of a block are picked one by one. Then a loop that compilers vectorise chooses between the two values.

inline void pick(const std::byte* from, const uint8_t* picks, uint8_t* __restrict bytes, size_t n) {
  for (size_t lane = 0; lane < n; lane++)
    if (picks[lane] < 128) bytes[lane] = static_cast<uint8_t>(from[picks[lane]]);
}

template <typename T>
void choose(const uint8_t* bytes, const uint8_t* bits, const Unaligned<T>* low, const Unaligned<T>* high,
            Unaligned<T>* __restrict to, size_t n) {
  for (size_t lane = 0; lane < n; lane++) {
    const T ones = static_cast<T>(0 - static_cast<T>((bytes[lane] & bits[lane]) != 0));
    to[lane].value = static_cast<T>(low[lane].value ^ ((low[lane].value ^ high[lane].value) & ones));
  }
}

template <typename T>
void bits(const BitLayout& layout, const std::byte* const* rows, size_t n, std::byte* out, size_t out_stride) {
  constexpr size_t lanes = 64;
  for (size_t row = 0; row < n; row++, out += out_stride) {
    for (size_t first = 0; first < layout.elements; first += lanes) {
      const BitLayout::Block& block = layout.blocks[first / lanes];
      const size_t count = layout.elements - first < lanes ? layout.elements - first : lanes;
      const auto* recipe = reinterpret_cast<const uint8_t*>(block.recipe);
      uint8_t bytes[lanes];
      pick(rows[row] + block.byte, recipe, bytes, count);
      for (size_t i = 0; i < block.more_windows; i++) {
        const BitLayout::Window& window = layout.windows[block.more + i];
        pick(rows[row] + window.byte, reinterpret_cast<const uint8_t*>(window.picks), bytes, count);
      }
      const auto *high = at<T>(block.recipe + 2 * lanes), *low = high + lanes;
      choose(bytes, recipe + lanes, low, high, at<T>(out) + first, count);
    }
  }
}

consteval Kernels table() {
  Kernels kernels = common("portable");
  kernels.bits[0] = bits<uint8_t>;
  kernels.bits[1] = bits<uint16_t>;
  kernels.bits[2] = bits<uint32_t>;
  kernels.bits[3] = bits<uint64_t>;
  return kernels;
}

}  // namespace portable

constexpr Kernels kernels_portable = portable::table();

}  // namespace feedline::unpack
