// Reads from EXIF data how a picture must be turned to be upright (CIPA DC-008, tag Orientation).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "pictures/decode/picture.h"

namespace feedline::pictures {

/// The bytes with which EXIF data begins in a JPEG, and in the PNGs of some writers, too.
inline constexpr std::string_view exif_begins("Exif\0\0", 6);

/// Returns the orientation that a TIFF structure states; exif_begins may stand before the structure. If the data lacks
/// the tag or is damaged, returns the orientation of a picture that is not turned.
Orientation exif_orientation(std::span<const std::byte> bytes) noexcept;

}  // namespace feedline::pictures
