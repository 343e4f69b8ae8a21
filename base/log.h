// The library's one logger, spdlog's "feedline": warnings go to standard error; programs may change level and sinks
// through spdlog. The library never logs from a hot path. spdlog's own headers are left out: they double the time that
// a file takes to compile.
#pragma once

#include <memory>
#include <string_view>

namespace spdlog {
class logger;
}

namespace feedline {

/// These are thread-safe.
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

/// Thread-safe. Made at the first call; a logger of that name that the program registered before is used instead.
std::shared_ptr<spdlog::logger> logger();

}  // namespace feedline
