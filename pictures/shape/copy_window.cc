#include "pictures/shape/copy_window.h"

#include <cstdint>
#include <cstring>

namespace feedline::pictures {
namespace {

template <size_t pixel_bytes>
void copy_mirrored(const std::byte* from, size_t pixels, std::byte* out) noexcept {
  for (size_t i = 0; i < pixels; i++)
    std::memcpy(out + i * pixel_bytes, from + (pixels - 1 - i) * pixel_bytes, pixel_bytes);
}

// Handles every size that a pixel can have: one or three elements of 1, 2, 4 or 8 bytes.
void copy_mirrored(const std::byte* from, size_t pixels, size_t pixel_bytes, std::byte* out) noexcept {
  switch (pixel_bytes) {
    case 1:
      return copy_mirrored<1>(from, pixels, out);
    case 2:
      return copy_mirrored<2>(from, pixels, out);
    case 3:
      return copy_mirrored<3>(from, pixels, out);
    case 4:
      return copy_mirrored<4>(from, pixels, out);
    case 6:
      return copy_mirrored<6>(from, pixels, out);
    case 8:
      return copy_mirrored<8>(from, pixels, out);
    case 12:
      return copy_mirrored<12>(from, pixels, out);
    case 24:
      return copy_mirrored<24>(from, pixels, out);
  }
}

}  // namespace

void copy_window(const std::byte* tensor, const Size& size, const Window& window, bool is_mirrored,
                 const Finish& finish, std::byte* out) noexcept {
  const auto channels = static_cast<size_t>(finish.channels);
  const size_t planes = finish.channels_first ? channels : 1,
               pixel = size_of(finish.dtype) * (finish.channels_first ? 1 : channels);
  const auto width = static_cast<size_t>(size.width), pixels = static_cast<size_t>(window.width);
  const size_t plane = static_cast<size_t>(size.height) * width * pixel, row = pixels * pixel;
  for (size_t p = 0; p < planes; p++) {
    const std::byte* from =
        tensor + p * plane + (static_cast<size_t>(window.y) * width + static_cast<size_t>(window.x)) * pixel;
    if (pixels == width && !is_mirrored) {
      std::memcpy(out, from, static_cast<size_t>(window.height) * row);
      out += static_cast<size_t>(window.height) * row;
      continue;
    }
    for (int64_t y = 0; y < window.height; y++, from += width * pixel, out += row)
      is_mirrored ? copy_mirrored(from, pixels, pixel, out) : void(std::memcpy(out, from, row));
  }
}

}  // namespace feedline::pictures
