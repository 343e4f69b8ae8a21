#include "tool/common/picture_stats.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/format_count.h"
#include "base/mul_div.h"
#include "pictures/decode/picture_info.h"

namespace feedline::tool {
namespace {

// Pictures of different sizes are resized to at most this height and width. Networks for ImageNet take 224 x 224.
constexpr int64_t usual_side = 224;

std::string sizes_of(const PictureStats& pictures) {
  const std::string most = fmt::format("{} x {}", pictures.width_max, pictures.height_max);
  return pictures.one_size() ? most : fmt::format("{} x {} to {}", pictures.width_min, pictures.height_min, most);
}

}  // namespace

void PictureStats::add(std::span<const std::byte> value) {
  if (!pictures::format_of(value)) return;
  try {
    const pictures::PictureInfo info = pictures::picture_info(value);
    add({.jpeg = info.format == pictures::Format::jpeg,
         .png = info.format == pictures::Format::png,
         .grey = info.channels == 1,
         .width_min = info.width,
         .width_max = info.width,
         .height_min = info.height,
         .height_max = info.height,
         .pixels_max = info.width * info.height});
  } catch (const pictures::BadPicture&) {
  }
}

void PictureStats::add(const PictureStats& other) {
  if (other.count() == 0) return;
  width_min = count() == 0 ? other.width_min : std::min(width_min, other.width_min);
  height_min = count() == 0 ? other.height_min : std::min(height_min, other.height_min);
  width_max = std::max(width_max, other.width_max);
  height_max = std::max(height_max, other.height_max);
  pixels_max = std::max(pixels_max, other.pixels_max);
  jpeg += other.jpeg;
  png += other.png;
  grey += other.grey;
}

std::string describe(const PictureStats& pictures, uint64_t values) {
  const char* formats = pictures.png == 0 ? "JPEG" : pictures.jpeg == 0 ? "PNG" : "JPEG and PNG";
  const char* channels = pictures.grey == 0                  ? "3 channels"
                         : pictures.grey == pictures.count() ? "1 channel"
                                                             : "1 and 3 channels";
  std::string text = fmt::format("{}, {}, {}", formats, sizes_of(pictures), channels);
  if (pictures.count() < values) text += fmt::format(", {} cannot be read", format_count(values - pictures.count()));
  return text;
}

void decode_pictures(TextFeature& feature, const PictureStats& pictures, uint64_t values, uint64_t most) {
  const bool grey = pictures.grey == pictures.count();
  const auto largest = static_cast<uint64_t>(pictures.pixels_max);
  // A third is added, because later pictures may be larger than those that were seen, and because a progressive picture
  // in CMYK needs a third more memory than decoder_memory() reserves for its pixels.
  const auto max_pixels = std::min<uint64_t>(round_up(largest + largest / 3, 1 << 16), pictures::most_pixels);
  int64_t height = pictures.height_max, width = pictures.width_max;
  std::string why = "the size of all pictures";
  if (!pictures.one_size()) {
    height = std::min(height, usual_side);
    width = std::min(width, usual_side);
    why = fmt::format("choose the size; the pictures have {} pixels", sizes_of(pictures));
  }
  feature.unreadable = values - pictures.count();
  feature.made = {
      fmt::format("decode_image {{ {}max_pixels: {} }}  # the largest picture has {} pixels; each thread reserves "
                  "memory for max_pixels",
                  grey ? "channels: 1 " : "", max_pixels, format_count(largest)),
      fmt::format("resize {{ size: [{}, {}] antialias: true }}  # {}", height, width, why)};
  feature.made_bytes = most * static_cast<uint64_t>(height * width * (grey ? 1 : 3));
}

}  // namespace feedline::tool
