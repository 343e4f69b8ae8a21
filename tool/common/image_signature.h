// How image files begin.
#pragma once

#include <string_view>

namespace feedline::cli {

/// ISO/IEC 10918-1: SOI and the first byte of the next marker.
inline bool begins_as_jpeg(std::string_view bytes) noexcept { return bytes.starts_with("\xff\xd8\xff"); }
/// RFC 2083, section 3.1.
inline bool begins_as_png(std::string_view bytes) noexcept { return bytes.starts_with("\x89PNG\r\n\x1a\n"); }

}  // namespace feedline::cli
