// Decodes and shapes any bytes: no byte is written past the tensor or the scratch memory, and a window's pixels are
// those of the whole picture.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "pictures/decode/jpeg_decoder.h"
#include "pictures/decode/picture_info.h"
#include "pictures/decode/png_decoder.h"
#include "pictures/shape/geometry.h"
#include "pictures/shape/render.h"

namespace {

using namespace feedline;
using namespace feedline::pictures;

constexpr int64_t side = 12;
constexpr int64_t max_pixels = 1 << 16;

template <typename Decoder>
std::vector<uint8_t> decoded(std::span<const std::byte> bytes, const DecodeOptions& decode, Window window) {
  Decoder decoder(bytes, decode);
  if (window.width == 0) window = {0, 0, decoder.width(), decoder.height()};
  std::vector<uint8_t> pixels(static_cast<size_t>(window.width * window.height * decoder.channels()));
  decoder.begin(window);
  for (int64_t y = 0; y < window.height; y++)
    decoder.read_row(pixels.data() + static_cast<size_t>(y * window.width * decoder.channels()));
  decoder.finish();
  return pixels;
}

// A window of a picture that decodes must decode, to the same pixels.
template <typename Decoder>
void compare_window(std::span<const std::byte> bytes, const DecodeOptions& decode, const Window& wanted) {
  Decoder header(bytes, decode);
  const int64_t width = header.width(), height = header.height(), channels = header.channels();
  Window window{wanted.x % width, wanted.y % height, 0, 0};
  window.width = 1 + wanted.width % (width - window.x);
  window.height = 1 + wanted.height % (height - window.y);
  const auto whole = decoded<Decoder>(bytes, decode, {});
  const auto part = decoded<Decoder>(bytes, decode, window);
  for (int64_t y = 0; y < window.height; y++) {
    const auto row = static_cast<size_t>(window.width * channels);
    const auto* from = whole.data() + ((window.y + y) * width + window.x) * channels;
    if (!std::equal(from, from + row, part.data() + static_cast<size_t>(y) * row)) std::abort();
  }
}

void render_in_bounds(std::span<const std::byte> bytes, const DecodeOptions& decode, uint8_t choices) {
  GeometrySpec geometry;
  geometry.crop = Size{side, side};
  geometry.crop_randomly = choices & 2;
  geometry.flip = 0.5;
  if (choices & 4) {
    geometry.padding = choices % 16;
  } else {
    geometry.crop_after_resize = true;
    geometry.shorter = side + choices % 7;
  }
  const Finish finish{.dtype = choices & 8 ? DType::float32 : DType::uint8,
                      .filter = static_cast<Filter>(choices >> 4 & 3),
                      .channels = choices & 64 ? 1 : 3,
                      .channels_first = (choices & 128) != 0};
  static std::vector<std::byte> memory;
  const size_t needed = render_memory(decode, side);
  memory.resize(std::max(memory.size(), needed + 1));
  std::byte& guard = memory[needed];
  const size_t elements = side * side * static_cast<size_t>(finish.channels);
  std::vector<std::byte> out(elements * size_of(finish.dtype));
  guard = std::byte{0x5a};
  render(
      bytes, decode,
      [&](int64_t width, int64_t height) {
        return geometry_of(geometry, width, height, {Draws(1), Draws(2)});
      },
      finish, out.data(), std::span(memory).first(needed));
  if (guard != std::byte{0x5a}) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 5) return 0;
  const auto bytes = std::as_bytes(std::span(data + 5, size - 5));
  DecodeOptions decode;
  decode.max_pixels = max_pixels;
  decode.channels = data[0] & 64 ? 1 : 3;
  decode.fast_dct = data[0] & 1;
  DecodeOptions more = decode;
  more.bits = data[4] & 1 ? 16 : 8;
  more.apply_exif = data[4] & 2;
  more.may_shrink = data[4] & 4;
  try {
    render_in_bounds(bytes, more, data[0]);
  } catch (const BadPicture&) {
  }
  try {
    picture_info(bytes);
  } catch (const BadPicture&) {
  }
  const Window window{data[1], data[2], data[3], data[4]};
  try {
    if (const auto format = format_of(bytes); format == Format::jpeg)
      compare_window<JpegDecoder>(bytes, decode, window);
    else if (format == Format::png)
      compare_window<PngDecoder>(bytes, decode, window);
  } catch (const BadPicture&) {
  }
  return 0;
}
