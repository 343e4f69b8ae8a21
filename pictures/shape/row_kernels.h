// The inner loops of resizing, compiled once for each SIMD level. All levels compute the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/machine.h"

namespace feedline::pictures {

/// Weighted sums of rows and of pixels, in FLOAT32, each step rounded.
struct RowKernels {
  /// to[i] = weights[0] * row 0 [i] + weights[1] * row 1 [i] + ..., from left to right, for i < count. Row r begins at
  /// rows + r * stride, in elements.
  template <typename Element>
  using AddRows = void (*)(float* to, const Element* rows, size_t stride, const float* weights, size_t taps,
                           size_t count);
  AddRows<uint8_t> add_rows_of_bytes;
  AddRows<uint16_t> add_rows_of_words;

  /// Selects, for each pixel of the result, the pixels of a row that are added.
  struct Taps {
    const int64_t* firsts;  // for each pixel: the number of the first pixel that is added
    int64_t origin;         // the number of the pixel with which the row begins
    const float* weights;   // for each pixel `taps` weights, which begin `stride` apart
    size_t stride, taps;
  };
  /// For each channel c and each x < width: planes[c * plane + x] = the sum over k < taps of
  /// weights[x][k] * row[(firsts[x] - origin + k) * channels + c], from left to right. All these elements of `row`, and
  /// 4 more after them, must be readable and finite, because some are read only to be multiplied by 0. Each plane has
  /// room for 3 more elements, which may be written.
  using AddPixels = void (*)(float* planes, size_t plane, const float* row, const Taps& taps, size_t width);
  AddPixels add_grey_pixels, add_colour_pixels;  // 1 channel, and 3

  /// Rounds to the nearest integer, halves to even.
  void (*round)(float* x, size_t count);
};

const RowKernels& row_kernels(SimdLevel level);

}  // namespace feedline::pictures
