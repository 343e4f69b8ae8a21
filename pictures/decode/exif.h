// Reads how a picture is to be turned from its EXIF data (CIPA DC-008, tag Orientation).
#pragma once

#include <cstddef>
#include <span>

#include "pictures/decode/picture.h"

namespace feedline::pictures {

/// Returns the orientation that the TIFF structure says. Data without the tag, or that is damaged, says none.
Orientation exif_orientation(std::span<const std::byte> tiff) noexcept;

}  // namespace feedline::pictures
