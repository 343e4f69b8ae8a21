#include "pictures/shape/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/compiled_for.h"

namespace feedline::pictures {
namespace {

// The compiler translates operations on this type to the best instructions that the SIMD level has.
using Four [[gnu::vector_size(16)]] = float;

Four load(const float* from) {
  Four four;
  std::memcpy(&four, from, sizeof four);
  return four;
}
void store(float* to, Four four) { std::memcpy(to, &four, sizeof four); }

// If `adds`, adds `taps` weighted rows to `to`, else sets `to` to their sum. If `tile` is not 0, `tile` elements are
// computed at a time, in loops of this fixed length. With AVX-512 the compiler then widens the elements while it loads
// them, which it does not do otherwise. This takes 0.65 of the time of a simple loop. (Vectors of the library Highway
// are no faster. With std::copy_n() the compiler would keep the sums in memory.)
template <size_t taps, bool adds, size_t tile, typename Element>
void add_few_rows(float* __restrict to, const Element* __restrict rows, size_t stride, const float* weights,
                  size_t count) {
  size_t i = 0;
  if constexpr (tile > 0)
    for (; i + tile <= count; i += tile) {
      float sums[tile] = {};
      if constexpr (adds)
        for (size_t t = 0; t < tile; t++) sums[t] = to[i + t];
      for (size_t r = 0; r < taps; r++) {
        int32_t row[tile];
        for (size_t t = 0; t < tile; t++) row[t] = rows[r * stride + i + t];
        for (size_t t = 0; t < tile; t++) {
          const float weighted = weights[r] * static_cast<float>(row[t]);
          sums[t] = r == 0 && !adds ? weighted : sums[t] + weighted;
        }
      }
      for (size_t t = 0; t < tile; t++) to[i + t] = sums[t];
    }
  for (; i < count; i++) {
    float sum = adds ? to[i] : weights[0] * static_cast<float>(rows[i]);
    for (size_t r = adds ? 0 : 1; r < taps; r++) sum += weights[r] * static_cast<float>(rows[r * stride + i]);
    to[i] = sum;
  }
}

template <bool adds, size_t tile, typename Element>
void add_up_to_four_rows(float* to, const Element* rows, size_t stride, const float* weights, size_t taps,
                         size_t count) {
  switch (taps) {
    case 1:
      return add_few_rows<1, adds, tile>(to, rows, stride, weights, count);
    case 2:
      return add_few_rows<2, adds, tile>(to, rows, stride, weights, count);
    case 3:
      return add_few_rows<3, adds, tile>(to, rows, stride, weights, count);
    default:
      return add_few_rows<4, adds, tile>(to, rows, stride, weights, count);
  }
}

template <typename Element, size_t tile>
void add_rows(float* to, const Element* rows, size_t stride, const float* weights, size_t taps, size_t count) {
  add_up_to_four_rows<false, tile>(to, rows, stride, weights, std::min<size_t>(taps, 4), count);
  for (size_t r = 4; r < taps; r += 4)
    add_up_to_four_rows<true, tile>(to, rows + r * stride, stride, weights + r, std::min<size_t>(taps - r, 4), count);
}

void add_grey_pixels(float* to, size_t, const float* row, const RowKernels::Taps& taps, size_t width) {
  for (size_t x = 0; x < width; x++) {
    const float* from = row + (taps.firsts[x] - taps.origin);
    const float* weights = taps.weights + x * taps.stride;
    float sum = weights[0] * from[0];
    for (size_t k = 1; k < taps.taps; k++) sum += weights[k] * from[k];
    to[x] = sum;
  }
}

// Computes four pixels at a time. A vector holds the three channels of a pixel, and one channel of the next pixel,
// which is not used.
void add_colour_pixels(float* planes, size_t plane, const float* row, const RowKernels::Taps& taps, size_t width) {
  for (size_t x = 0; x < width; x += 4) {
    const float *from[4], *weights[4];
    Four sums[4];
    for (size_t i = 0; i < 4; i++) {
      const size_t pixel = std::min(x + i, width - 1);
      from[i] = row + 3 * (taps.firsts[pixel] - taps.origin);
      weights[i] = taps.weights + pixel * taps.stride;
      sums[i] = weights[i][0] * load(from[i]);
    }
    for (size_t k = 1; k < taps.taps; k++)
      for (size_t i = 0; i < 4; i++) sums[i] += weights[i][k] * load(from[i] + 3 * k);
    const Four low = __builtin_shufflevector(sums[0], sums[1], 0, 4, 1, 5),
               high = __builtin_shufflevector(sums[2], sums[3], 0, 4, 1, 5);
    store(planes + x, __builtin_shufflevector(low, high, 0, 1, 4, 5));
    store(planes + plane + x, __builtin_shufflevector(low, high, 2, 3, 6, 7));
    const Four last_low = __builtin_shufflevector(sums[0], sums[1], 2, 6, 2, 6),
               last_high = __builtin_shufflevector(sums[2], sums[3], 2, 6, 2, 6);
    store(planes + 2 * plane + x, __builtin_shufflevector(last_low, last_high, 0, 1, 4, 5));
  }
}

void round_all(float* x, size_t count) {
  for (size_t i = 0; i < count; i++) x[i] = std::nearbyint(x[i]);
}

template <SimdLevel level>
constexpr size_t tile = level == SimdLevel::avx512 ? 16 : 0;

template <SimdLevel level>
constexpr RowKernels kernels{compiled_for<add_rows<uint8_t, tile<level>>>(level),
                             compiled_for<add_rows<uint16_t, tile<level>>>(level), compiled_for<add_grey_pixels>(level),
                             compiled_for<add_colour_pixels>(level), compiled_for<round_all>(level)};

}  // namespace

const RowKernels& row_kernels(SimdLevel level) {
  if (level == SimdLevel::avx512) return kernels<SimdLevel::avx512>;
  if (level == SimdLevel::avx2) return kernels<SimdLevel::avx2>;
  return kernels<SimdLevel::portable>;
}

}  // namespace feedline::pictures
