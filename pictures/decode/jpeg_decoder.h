// Decodes a JPEG row by row, with libjpeg-turbo.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <utility>
#include <vector>

// Included after <cstdio>, which jpeglib.h needs.
#include <jpeglib.h>

#include "pictures/decode/picture.h"

namespace feedline::pictures {

/// Decodes one picture. The pixels are those of TensorFlow's decode_jpeg with dct_method INTEGER_ACCURATE, or with
/// TensorFlow's default method if `fast_dct` is set. The pixels of a window are the same as in the whole picture.
/// Samples have 8 bits.
///
/// A picture that ends too early is refused, as TensorFlow refuses it. A picture is also refused if its scan is
/// followed by something that cannot follow a scan. Damage in rows below a window is not seen. Other damage of the scan
/// cannot be distinguished from a picture; libjpeg warns of some of it, see warnings().
class JpegDecoder {
 public:
  /// Reads the header. `bytes` must outlive the decoder. Throws BadPicture.
  JpegDecoder(std::span<const std::byte> bytes, const DecodeOptions& options);
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Return the width and the height in pixels: after shrink() those of the smaller picture, rounded up.
  int64_t width() const noexcept { return info_.output_width; }
  int64_t height() const noexcept { return info_.output_height; }
  /// Returns the channels of a decoded pixel.
  int channels() const noexcept { return channels_; }

  /// Returns how the picture must be turned to be upright. Decoded rows are not turned yet.
  Orientation orientation() const noexcept;

  /// Makes begin() and read_row() decode the picture to 1/`by` of its size. `by` is 1, 2, 4 or 8. Call this function
  /// before begin().
  void shrink(int by);

  /// Begins to decode a window, which must lie in the picture. Call it once. Throws BadPicture.
  void begin(const Window& window);
  /// Decodes the next row of the window into `row`, which has width * channels() bytes. Throws BadPicture.
  void read_row(uint8_t* row);
  /// Call it after the window's last row. Throws BadPicture if the picture is cut short.
  void finish();

  /// Returns how many warnings libjpeg has given.
  uint64_t warnings() const noexcept { return static_cast<uint64_t>(errors_.base.num_warnings); }

 private:
  struct Errors {
    jpeg_error_mgr base;
    std::jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
    bool cut;         // the data has ended before the picture
    bool scan_ended;  // a scan has ended before its last row
  };
  static void fail(j_common_ptr info);
  static void count_scans(j_common_ptr info);
  static void note(j_common_ptr info, int level);
  static void keep_quiet(j_common_ptr) {}

  /// Runs `body`, which calls libjpeg. Nothing in `body` may have a destructor, because libjpeg's failures leave it by
  /// longjmp(). Throws BadPicture if libjpeg fails.
  template <typename Body>
  void call(Body body);
  bool is_cmyk() const noexcept;

  const std::span<const std::byte> bytes_;
  Errors errors_;
  jpeg_progress_mgr progress_;
  jpeg_decompress_struct info_;
  int channels_ = 0;
  Window window_;
  int64_t first_column_ = 0;  // the first column of the rows that libjpeg delivers
  std::vector<uint8_t> row_;  // a row from libjpeg that must still be cut or converted for the caller; else empty
};

}  // namespace feedline::pictures
