// Finds out whether bytes are text, and cuts text between characters.
#pragma once

#include <cstddef>
#include <string_view>

namespace feedline {

/// Returns whether `bytes` are valid UTF-8 as RFC 3629 defines it.
bool is_utf8(std::string_view bytes) noexcept;

/// Returns the first `most` bytes of `text`, or up to 3 bytes fewer, so that no character of UTF-8 is cut in two.
std::string_view cut_text(std::string_view text, size_t most) noexcept;

}  // namespace feedline
