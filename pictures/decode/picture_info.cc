#include "pictures/decode/picture_info.h"

#include "pictures/decode/jpeg_decoder.h"
#include "pictures/decode/png_decoder.h"

namespace feedline::pictures {
namespace {

constexpr int64_t most_pixels = int64_t{1} << 29;  // the largest max_pixels that a pipeline may have
constexpr uint32_t longest_row = 65536;            // wider pictures are not decoded

template <typename Decoder>
PictureInfo info_of(Format format, std::span<const std::byte> bytes) {
  const Decoder decoder(bytes, {.max_pixels = most_pixels});
  return {format, decoder.width(), decoder.height(), decoder.channels() == 1 ? 1 : 3};
}

// Returns the width that a PNG promises (RFC 2083, sections 3.2 and 4.1.1); 0 if the picture ends before it.
uint32_t png_width(std::span<const std::byte> bytes) {
  constexpr size_t begin = 16, end = 20;
  uint32_t width = 0;
  for (size_t i = begin; i < end && bytes.size() >= end; i++) width = width << 8 | std::to_integer<uint32_t>(bytes[i]);
  return width;
}

}  // namespace

PictureInfo picture_info(std::span<const std::byte> bytes) {
  const auto format = format_of(bytes);
  if (!format) throw BadPicture("it is neither a JPEG nor a PNG");
  if (*format == Format::jpeg) return info_of<JpegDecoder>(*format, bytes);
  // The decoder takes memory for a row.
  if (png_width(bytes) > longest_row) throw BadPicture("the picture is wider than 65536 pixels");
  return info_of<PngDecoder>(*format, bytes);
}

}  // namespace feedline::pictures
