// What people see: numbers as they read them, and a line on the terminal that changes.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace feedline::cli {

/// "1,234,567".
std::string format_count(uint64_t number);
/// "7" or "7 to 1,024".
std::string format_range(uint64_t least, uint64_t most);
/// Three digits: "1.25 M", "830 k", "12".
std::string format_rate(double per_second);
/// "830 ms", "12 s", "1:05", "2:01:05".
std::string format_seconds(double seconds);

/// A line at the bottom of the terminal behind standard error, rewritten in place. Elsewhere nothing is shown. Not
/// thread-safe.
class LiveLine {
 public:
  LiveLine();
  ~LiveLine() { clear(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  /// Whether anybody looks.
  bool on() const noexcept { return on_; }
  void show(std::string_view text);
  void clear();

 private:
  bool on_;
  bool shown_ = false;
};

/// How far a pass over files is: "verifying 43 %, 1.2 GB/s, 12 s left". Thread-safe.
class Progress {
 public:
  Progress(std::string what, uint64_t total_bytes) : what_(std::move(what)), total_(total_bytes) {}

  /// More bytes are done.
  void add(uint64_t bytes);
  /// So many are done in all, of so many.
  void set(uint64_t done, uint64_t total);
  /// Takes the line away.
  void done();

 private:
  void show();

  const std::string what_;
  std::mutex mutex_;
  LiveLine line_;
  uint64_t done_ = 0, total_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point shown_at_ = start_;
};

}  // namespace feedline::cli
