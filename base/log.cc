#include "base/log.h"

#include <fmt/format.h>

#include <cstdio>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "feedline/log.h"

namespace feedline {
namespace {

void write_to_stderr(LogLevel level, std::string_view line) {
  if (level == LogLevel::info) return;
  // One call, so that lines of several processes do not mix.
  const std::string text = "feedline: " + std::string(name(level)) + ": " + without_controls(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

struct Log {
  Mutex mutex;
  LogSink sink FEEDLINE_GUARDED_BY(mutex) = write_to_stderr;
  std::set<std::string> said_once FEEDLINE_GUARDED_BY(mutex);
};

Log& log() {
  static Log& log = *new Log;  // never destroyed: threads may log while the process ends
  return log;
}

void write(LogLevel level, std::string_view line) {
  Log& to = log();
  const Lock lock(to.mutex);
  if (to.sink) to.sink(level, line);
}

}  // namespace

std::string without_controls(std::string_view text, std::string_view kept) {
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

std::string_view name(LogLevel level) noexcept {
  constexpr std::string_view names[] = {"info", "warning", "error"};
  return names[static_cast<size_t>(level)];
}

LogSink stderr_log_sink() { return write_to_stderr; }

LogSink set_log_sink(LogSink sink) {
  Log& to = log();
  const Lock lock(to.mutex);
  return std::exchange(to.sink, std::move(sink));
}

void log_info(std::string_view line) { write(LogLevel::info, line); }
void log_warning(std::string_view line) { write(LogLevel::warning, line); }
void log_error(std::string_view line) { write(LogLevel::error, line); }

void log_warning_once(const std::string& line) {
  {
    Log& all = log();
    const Lock lock(all.mutex);
    if (!all.said_once.insert(line).second) return;
  }
  log_warning(line);
}

}  // namespace feedline
