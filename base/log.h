// The library's only logger: spdlog's logger named "feedline".
//
// By default the logger writes warnings and errors to standard error. Programs may change its level and its sinks
// through spdlog. The library never logs from a hot path. This header does not include spdlog's headers, because they
// double the time that a file takes to compile.
#pragma once

#include <memory>
#include <string_view>

namespace spdlog {
class logger;
}

namespace feedline {

/// Log one line at the named level. Thread-safe.
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

/// Returns the logger, which the first call creates. If the program has registered a logger named "feedline" before,
/// the library uses the program's logger. Thread-safe.
std::shared_ptr<spdlog::logger> logger();

}  // namespace feedline
