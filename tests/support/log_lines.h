// Collects the lines that the library logs while an object of this class lives; they do not reach the usual sink.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "feedline/log.h"

namespace feedline::test {

class LogLines {
 public:
  LogLines()
      : other_(set_log_sink([this](LogLevel, std::string_view line) {
          const std::lock_guard lock(mutex_);
          lines_.emplace_back(line);
          changed_.notify_all();
        })) {}
  ~LogLines() { set_log_sink(other_); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  /// Waits for a logged line that contains `part`. Returns false if none comes within a minute.
  bool wait_for(const std::string& part) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] {
      for (const std::string& line : lines_)
        if (line.find(part) != std::string::npos) return true;
      return false;
    });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::string> lines_;
  const LogSink other_;
};

}  // namespace feedline::test
