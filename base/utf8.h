// Finds out whether bytes are text, and cuts text between characters.
#pragma once

#include <cstddef>
#include <string_view>

namespace feedline {

/// The mark with which some editors begin a text in UTF-8.
inline constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// Returns whether `bytes` are valid UTF-8 as RFC 3629 defines it.
bool is_utf8(std::string_view bytes) noexcept;

/// Returns the first `most` bytes of `text`, or up to 3 bytes fewer, so that no character of UTF-8 is cut in two.
std::string_view cut_text(std::string_view text, size_t most) noexcept;

}  // namespace feedline
