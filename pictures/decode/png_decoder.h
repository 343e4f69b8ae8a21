// Decodes a PNG row by row, with libpng.
#pragma once

#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pictures/decode/picture.h"

namespace feedline::pictures {

/// Decodes one picture to the pixels of TensorFlow's decode_png. They are uint8, or uint16 if options.bits is 16.
/// Palettes and greys of less than 8 bits are expanded, and gamma is ignored. Alpha is dropped. A picture whose end is
/// missing or wrong is refused, as TensorFlow refuses it. Damage in rows below a window is not seen.
///
/// An interlaced picture is decoded whole before its first row is delivered.
class PngDecoder {
 public:
  /// Reads the header. `bytes` must outlive the decoder. Throws BadPicture.
  PngDecoder(std::span<const std::byte> bytes, const DecodeOptions& options);
  ~PngDecoder();
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  // These functions do the same as JpegDecoder's.
  int64_t width() const noexcept { return width_; }
  int64_t height() const noexcept { return height_; }
  int channels() const noexcept { return channels_; }
  Orientation orientation() const noexcept;
  void begin(const Window& window);
  void read_row(uint8_t* row) { read_samples(row); }
  /// Decodes the next row to samples of 16 bits. To be called only if options.bits is 16.
  void read_row(uint16_t* row) { read_samples(reinterpret_cast<uint8_t*>(row)); }
  void finish();
  uint64_t warnings() const noexcept { return warnings_; }

 private:
  static void fail(png_structp png, png_const_charp message);
  static void note(png_structp png, png_const_charp message);
  static void read(png_structp png, png_bytep to, size_t bytes);
  template <typename Body>
  void call(Body body);
  void read_samples(uint8_t* row);

  std::span<const std::byte> bytes_;
  size_t read_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_;
  char message_[128] = "";
  uint64_t warnings_ = 0;
  int64_t width_ = 0, height_ = 0;
  int channels_ = 0;
  size_t pixel_bytes_ = 0;
  Window window_;
  bool interlaced_ = false;
  int64_t row_ = 0;              // the next row of the picture
  size_t row_bytes_ = 0;         // of a row of the whole picture
  std::vector<uint8_t> pixels_;  // one row, or the whole picture if it is interlaced
};

}  // namespace feedline::pictures
