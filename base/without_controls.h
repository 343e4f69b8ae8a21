// Text from others, as a terminal or a log may show it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace feedline {

/// Returns the text with each control character as \xNN, so that a file's name, or a message of another process, cannot
/// command a terminal or begin a line of a log. Those in `kept`, such as the ends of lines, stay. The C1 controls of
/// UTF-8 are controls, too.
inline std::string without_controls(std::string_view text, std::string_view kept = "") {
  std::string shown;
  for (size_t i = 0; i < text.size(); i++) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c1 = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) - 0x80u < 0x20u;
    if (c1)
      shown += fmt::format("\\xc2\\x{:02x}", static_cast<unsigned char>(text[++i]));
    else if ((byte < 0x20 || byte == 0x7f) && kept.find(text[i]) == std::string_view::npos)
      shown += fmt::format("\\x{:02x}", byte);
    else
      shown += text[i];
  }
  return shown;
}

}  // namespace feedline
