// Logs lines to the sink of feedline/log.h, and makes text from outside the program safe to show to people.
#pragma once

#include <string>
#include <string_view>

namespace feedline {

/// Log one line at the named level. Thread-safe. Never called on a hot path.
void log_info(std::string_view line);
void log_warning(std::string_view line);
void log_error(std::string_view line);
/// Logs a warning, unless this process has logged the same line by this function before. Thread-safe.
void log_warning_once(const std::string& line);

/// Returns the text with each control character as \xNN, so that a file's name, or a message of another process, cannot
/// control a terminal or begin a new line of a log. Control characters that are in `kept`, such as the ends of lines,
/// are not changed. The C1 controls, which have two bytes in UTF-8, are control characters, too.
std::string without_controls(std::string_view text, std::string_view kept = "");

}  // namespace feedline
