// Appends formatted text to a string, where fmt::format_to() with a back_inserter would compile a formatter anew.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace feedline {

/// Appends `args` to `text` as `format` says, as fmt::format() would write them.
template <typename... Args>
void append(std::string& text, fmt::format_string<Args...> format, Args&&... args) {
  text += fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace feedline
