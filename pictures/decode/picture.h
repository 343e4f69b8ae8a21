// Declares what encoded pictures of all formats share: windows, limits, and the options of decoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace feedline::pictures {

/// The reason why a picture cannot be decoded; what() is used as the message of an Error bad_image.
struct BadPicture : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Format : uint8_t { jpeg, png };

/// Returns the format that the first bytes show; nullopt if the bytes are neither a JPEG nor a PNG.
inline std::optional<Format> format_of(std::span<const std::byte> bytes) noexcept {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\xff\xd8\xff")) return Format::jpeg;      // ISO/IEC 10918-1: SOI, and a marker begins
  if (text.starts_with("\x89PNG\r\n\x1a\n")) return Format::png;  // RFC 2083, section 3.1
  return std::nullopt;
}

/// Returns a message about bytes for which format_of() returns nullopt: that they are not decoded, and which format
/// they seem to have.
std::string no_format(std::span<const std::byte> bytes);

/// Pixels [x, x + width) of the rows [y, y + height) of a picture.
struct Window {
  int64_t x = 0, y = 0, width = 0, height = 0;
  bool operator==(const Window&) const = default;
};

/// The steps that turn a picture upright. First, columns and rows change places if `transposed`. Then the picture is
/// mirrored left to right if `mirrored`. Then it is turned upside down, which reverses the order of its rows, if
/// `upside_down`.
struct Orientation {
  bool transposed = false, mirrored = false, upside_down = false;
  bool operator==(const Orientation&) const = default;
};

/// The maximum of DecodeOptions::max_pixels. It is TensorFlow's limit, too.
inline constexpr int64_t most_pixels = int64_t{1} << 29;
/// The maximum width and height. A JPEG cannot have more.
inline constexpr int64_t longest_side = 65536;

struct DecodeOptions {
  /// Channels of a decoded pixel: 1 is grey, 3 is red, green and blue. 0 means 1 for a grey picture, else 3.
  int channels = 0;
  /// Bits of a sample: 8, or 16. With 8, a PNG of 16 bits keeps the upper 8. With 16, samples of 8 bits are multiplied
  /// by 257, so that 255 becomes 65535.
  int bits = 8;
  /// Pictures with more pixels are refused as soon as their header is read.
  int64_t max_pixels = int64_t{1} << 24;
  /// If true, a JPEG is decoded with the fast integer transform (DCT) instead of the accurate one, as TensorFlow does
  /// by default.
  bool fast_dct = false;
  /// If true, pictures are turned upright as their EXIF data says.
  bool apply_exif = false;
  /// If true, a window of a JPEG may be decoded to a half, a quarter or an eighth of its size before it is resized. The
  /// smaller window must still be at least as large as the size to which it is then resized. This changes the pixels.
  bool may_shrink = false;

  bool operator==(const DecodeOptions&) const = default;
};

/// Returns how many bytes a decoder allocates on the heap at most. A progressive JPEG needs 2 bytes for each
/// coefficient, and is refused if it needs more than this maximum. An interlaced PNG is kept whole.
inline uint64_t decoder_memory(const DecodeOptions& options) noexcept {
  constexpr uint64_t bytes_per_pixel = 6, more = 8 << 20;  // `more`: tables, rows of blocks, pointers to rows
  return bytes_per_pixel * static_cast<uint64_t>(options.max_pixels) + more;
}

/// Throws BadPicture if a picture of this size has no pixels, more than options.max_pixels, or a side of more than
/// longest_side. The size is that in the picture's header.
void check_size(int64_t width, int64_t height, const DecodeOptions& options);

}  // namespace feedline::pictures
