#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace feedline {

std::shared_ptr<spdlog::logger> logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    if (auto existing = spdlog::get("feedline")) return existing;
    auto made = spdlog::stderr_color_mt("feedline");
    made->set_pattern("feedline: %l: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return instance;
}

void log_info(std::string_view message) { logger()->info(message); }
void log_warning(std::string_view message) { logger()->warn(message); }
void log_error(std::string_view message) { logger()->error(message); }

}  // namespace feedline
