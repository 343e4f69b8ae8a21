// Ceilings of pictures: bare loops over libjpeg-turbo and libpng, and a bare resize. They trust the pictures: where a
// library finds an error, it ends the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

// After <cstdio>, which it needs.
#include <jpeglib.h>

#include "pictures/decode/picture.h"

namespace feedline::bench {

/// Decodes JPEGs with one decompressor, which is made once.
class BareJpeg {
 public:
  BareJpeg();
  ~BareJpeg();
  BareJpeg(const BareJpeg&) = delete;
  BareJpeg& operator=(const BareJpeg&) = delete;

  /// Rows of pixels of 3 bytes.
  struct Rows {
    const uint8_t* first;  // the first wanted byte
    size_t bytes;          // from one row to the next
  };
  /// Decodes a window, with the columns around it that libjpeg needs for it, into memory of the decompressor.
  Rows decode(std::string_view picture, const pictures::Window& window);

 private:
  jpeg_error_mgr errors_;
  jpeg_decompress_struct info_;
  std::vector<uint8_t> pixels_;
};

/// Decodes a PNG of 3 channels of 8 bits, which is not interlaced, to width x height pixels.
void decode_bare_png(std::string_view picture, std::vector<uint8_t>& pixels);

/// Resizes a square of 3 channels to a smaller one with a triangle filter, as antialiased bilinear resizing, and
/// normalises: x * scale + bias. The sums are not in feedline's order, so that the last bits may differ.
class BareResize {
 public:
  BareResize(int64_t from, int64_t to);
  /// Writes planes [3, to, to].
  void operator()(BareJpeg::Rows pixels, const float* scale, const float* bias, float* out);

 private:
  static void resize(BareResize& of, BareJpeg::Rows pixels, const float* scale, const float* bias, float* out);

  size_t from_, to_;
  size_t taps_;  // of each pixel; some weights are 0
  std::vector<size_t> firsts_;
  std::vector<float> weights_;
  std::vector<float> row_;
};

}  // namespace feedline::bench
