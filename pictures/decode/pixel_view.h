// A view of pixels that lie in memory, such as those of decode_raw. It has the member functions of a decoder, so that
// render() can read from either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "pictures/decode/picture.h"

namespace feedline::pictures {

/// A picture of `Sample`s. Does not own the pixels. Steps are in samples, and may be negative.
template <typename Sample>
struct PixelView {
  const Sample* first = nullptr;  // the first sample of the pixel at the top left
  int64_t rows = 0, columns = 0;
  int samples = 0;  // how many samples a pixel has: one for each channel
  int64_t row_step = 0, column_step = 0, sample_step = 1;

  int64_t width() const noexcept { return columns; }
  int64_t height() const noexcept { return rows; }
  int channels() const noexcept { return samples; }

  void begin(const Window& window) noexcept {
    first += window.y * row_step + window.x * column_step;
    columns = window.width;
    rows = window.height;
  }
  void read_row(Sample* row) noexcept {
    if (sample_step == 1 && column_step == samples) {
      std::memcpy(row, first, static_cast<size_t>(columns * samples) * sizeof(Sample));
    } else {
      for (int64_t x = 0; x < columns; x++)
        for (int64_t c = 0; c < samples; c++) row[x * samples + c] = first[x * column_step + c * sample_step];
    }
    first += row_step;
  }
  void finish() noexcept {}

  /// Turns the view; the pixels stay where they are.
  void turn(const Orientation& orientation) noexcept {
    if (orientation.transposed) {
      std::swap(rows, columns);
      std::swap(row_step, column_step);
    }
    if (orientation.mirrored) {
      first += (columns - 1) * column_step;
      column_step = -column_step;
    }
    if (orientation.upside_down) {
      first += (rows - 1) * row_step;
      row_step = -row_step;
    }
  }
};

}  // namespace feedline::pictures
