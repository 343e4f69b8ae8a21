#include "pictures/decode/picture.h"

#include <fmt/format.h>

namespace feedline::pictures {

void check_size(int64_t width, int64_t height, const DecodeOptions& options) {
  if (width <= 0 || height <= 0) throw BadPicture(fmt::format("the header says {} x {} pixels", width, height));
  if (width > options.max_pixels / height)
    throw BadPicture(fmt::format("the header says {} x {} pixels, and decode_image.max_pixels allows {}", width, height,
                                 options.max_pixels));
  if (width > longest_row) throw BadPicture(fmt::format("the picture is wider than {} pixels", longest_row));
}

}  // namespace feedline::pictures
