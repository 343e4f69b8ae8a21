// Appends formatted text to a string. fmt::format_to() with a back_inserter would do the same, but would have a
// formatter compiled anew.
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
