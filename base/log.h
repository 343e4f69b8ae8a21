// Logs a line to the sink of feedline/log.h.
#pragma once

#include <string_view>

namespace feedline {

/// Log one line at the named level. Thread-safe. Never called on a hot path.
void log_info(std::string_view line);
void log_warning(std::string_view line);
void log_error(std::string_view line);

}  // namespace feedline
