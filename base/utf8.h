// Whether bytes are text.
#pragma once

#include <string_view>

namespace feedline {

bool is_utf8(std::string_view bytes) noexcept;

}  // namespace feedline
