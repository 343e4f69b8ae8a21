// Bytes as text.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace feedline {

/// Returns the bytes in base64 (RFC 4648, section 4), with padding.
std::string base64(std::string_view bytes);
/// Returns the bytes as hexadecimal digits, two for each byte.
std::string hexadecimal(std::span<const std::byte> bytes);

}  // namespace feedline
