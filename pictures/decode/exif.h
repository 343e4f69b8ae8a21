// Reads how a picture is to be turned from its EXIF data (CIPA DC-008, tag Orientation).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "pictures/decode/picture.h"

namespace feedline::pictures {

/// What EXIF data of a JPEG begins with, and that of a PNG by some writers.
inline constexpr std::string_view exif_begins("Exif\0\0", 6);

/// Returns the orientation that a TIFF structure says, which may have exif_begins before it. Data without the tag, or
/// that is damaged, says none.
Orientation exif_orientation(std::span<const std::byte> bytes) noexcept;

}  // namespace feedline::pictures
