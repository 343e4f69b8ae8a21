// Finds out whether bytes are text.
#pragma once

#include <string_view>

namespace feedline {

/// Returns whether `bytes` are valid UTF-8 as RFC 3629 defines it.
bool is_utf8(std::string_view bytes) noexcept;

}  // namespace feedline
