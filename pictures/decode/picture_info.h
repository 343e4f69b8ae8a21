// What the header of an encoded picture says, for those who do not want its pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pictures/decode/picture.h"

namespace feedline::pictures {

struct PictureInfo {
  Format format;
  int64_t width = 0, height = 0;
  int channels = 0;  // 1 if the picture is grey, else 3; alpha does not count
};

/// Reads only the header. Throws BadPicture if it cannot be read, or if no options allow so many pixels.
PictureInfo picture_info(std::span<const std::byte> bytes);

/// Returns the versions of what decodes: of the libraries, and of this folder. Pixels that were kept are used again
/// only if these versions are still the same.
std::string decoder_versions();

}  // namespace feedline::pictures
