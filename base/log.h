// The library's one logger, "feedline": warnings go to standard error; programs may change level and sinks through
// spdlog. The library never logs from a hot path.
#pragma once

#include <spdlog/spdlog.h>

#include <memory>

namespace feedline {

/// Thread-safe. Made at the first call; a logger of that name that the program registered before is used instead.
std::shared_ptr<spdlog::logger> logger();

}  // namespace feedline
