#include "pictures/decode/picture.h"

#include <fmt/format.h>

#include <algorithm>

namespace feedline::pictures {

std::string no_format(std::span<const std::byte> bytes) {
  struct Other {
    const char* name;
    size_t at;  // the offset of `begins` in the value
    std::string_view begins;
    bool is_text = false;
  };
  static constexpr Other others[] = {
      {"a GIF", 0, "GIF8"},
      {"a WebP", 8, "WEBP"},
      {"an AVIF", 4, "ftypavi"},
      {"a HEIC", 4, "ftyphei"},
      {"a HEIC", 4, "ftypmif1"},
      {"a TIFF", 0, {"II*\0", 4}},
      {"a TIFF", 0, {"MM\0*", 4}},
      {"a JPEG 2000", 4, "jP  "},
      {"a JPEG XL", 4, "JXL "},
      {"a JPEG XL", 0, "\xff\x0a"},
      {"an array of numpy.save", 0, "\x93NUMPY"},
      {"a JPEG", 0, "/9j/", true},
      {"a PNG", 0, "iVBORw0KGgo", true},
      {"a picture", 0, "data:image/", true},
      {"a BMP", 0, "BM"},
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto found = std::find_if(std::begin(others), std::end(others), [&](const Other& other) {
    return text.size() >= other.at && text.substr(other.at).starts_with(other.begins);
  });
  if (text.empty()) return "the value is empty, and neither a JPEG nor a PNG";
  if (found == std::end(others)) return "the value is neither a JPEG nor a PNG";
  return fmt::format("the value is neither a JPEG nor a PNG, but looks like {}{}", found->name,
                     found->is_text ? " as base64 text; decode the base64 text, and store the bytes"
                                    : "; store the picture as a JPEG or a PNG");
}

void check_size(int64_t width, int64_t height, const DecodeOptions& options) {
  if (width <= 0 || height <= 0) throw BadPicture(fmt::format("the header says {} x {} pixels", width, height));
  if (width > options.max_pixels / height)
    throw BadPicture(fmt::format("the header says {} x {} pixels, but decode_image.max_pixels allows {} pixels", width,
                                 height, options.max_pixels));
  if (std::max(width, height) > longest_side)
    throw BadPicture(fmt::format("the header says {} x {} pixels, but a side may have at most {} pixels", width, height,
                                 longest_side));
}

}  // namespace feedline::pictures
