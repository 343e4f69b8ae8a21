// Reads the header of an encoded picture, for callers that do not need its pixels.
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

/// Reads only the header. Throws BadPicture if the header cannot be read, or if the picture is larger than any
/// DecodeOptions allow.
PictureInfo picture_info(std::span<const std::byte> bytes);

/// Returns the versions of the code that decodes: of libjpeg-turbo (the build's headers), of libpng and of this folder.
/// Pixels in a cache are used again only if these versions are still the same.
std::string decoder_versions();

}  // namespace feedline::pictures
