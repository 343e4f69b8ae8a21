#include "pictures/decode/picture_info.h"

#include <fmt/format.h>

#include "pictures/decode/jpeg_decoder.h"
#include "pictures/decode/png_decoder.h"

namespace feedline::pictures {
namespace {

template <typename Decoder>
PictureInfo info_of(Format format, std::span<const std::byte> bytes) {
  const Decoder decoder(bytes, {.max_pixels = most_pixels});
  return {format, decoder.width(), decoder.height(), decoder.channels() == 1 ? 1 : 3};
}

}  // namespace

PictureInfo picture_info(std::span<const std::byte> bytes) {
  const auto format = format_of(bytes);
  if (!format) throw BadPicture(no_format(bytes));
  return *format == Format::jpeg ? info_of<JpegDecoder>(*format, bytes) : info_of<PngDecoder>(*format, bytes);
}

std::string decoder_versions() {
  constexpr int own = 3;  // raise it whenever the pixels change, or the set of pictures that are refused
  return fmt::format("libjpeg-turbo {}, libpng {}, feedline {}", LIBJPEG_TURBO_VERSION_NUMBER,
                     png_access_version_number(), own);
}

}  // namespace feedline::pictures
