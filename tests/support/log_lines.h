// Collects the lines that the library logs while an object of this class lives; they do not reach the usual sinks.
#pragma once

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"

namespace feedline::test {

class LogLines {
 public:
  LogLines() : others_(std::exchange(logger()->sinks(), {sink_})) {}
  ~LogLines() { logger()->sinks() = others_; }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  std::vector<std::string> lines() const {
    const std::lock_guard lock(sink_->mutex);
    return sink_->lines;
  }
  /// Waits for a logged line that contains `part`. Returns false if none comes within a minute.
  bool wait_for(const std::string& part) const {
    std::unique_lock lock(sink_->mutex);
    return sink_->changed.wait_for(lock, std::chrono::minutes(1), [&] {
      for (const std::string& line : sink_->lines)
        if (line.find(part) != std::string::npos) return true;
      return false;
    });
  }

 private:
  struct Sink final : spdlog::sinks::base_sink<std::mutex> {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> lines;
    void sink_it_(const spdlog::details::log_msg& message) override {
      const std::lock_guard lock(mutex);
      lines.emplace_back(message.payload.data(), message.payload.size());
      changed.notify_all();
    }
    void flush_() override {}
  };
  const std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  const std::vector<spdlog::sink_ptr> others_;
};

}  // namespace feedline::test
