// Bytes as text.
#pragma once

#include <string>
#include <string_view>

namespace feedline {

/// Returns the bytes in base64 (RFC 4648, section 4), with padding.
std::string base64(std::string_view bytes);

}  // namespace feedline
