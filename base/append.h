// Appends formatted text to a string. fmt::format_to() with a back_inserter would do the same, but would make the
// compiler instantiate one more formatter.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace feedline {

/// Appends fmt::format(format, args...) to `text`.
template <typename... Args>
void append(std::string& text, fmt::format_string<Args...> format, Args&&... args) {
  text += fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace feedline
