// What people see on the terminal: numbers as text, and how far a command is.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format_count.h"
#include "base/log.h"
#include "base/mutex.h"

namespace feedline::tool {

/// Writes the text to `out` at once. Ignores a failure: a closed terminal or a full disk must not end a command.
void show_text(std::FILE* out, std::string_view text) noexcept;

/// print_error() shows "feedline: ", the text and a line end on standard error. print_line() prints the text and a
/// line end on standard output. Control characters in the text are shown as \xNN, so that names and messages from
/// elsewhere cannot command the terminal. print_error() keeps line ends, because some messages, such as those of
/// formulas, have several lines.
template <typename... Values>
void print_error(fmt::format_string<Values...> format, Values&&... values) {
  const std::string text = fmt::format(format, std::forward<Values>(values)...);
  show_text(stderr, "feedline: " + without_controls(text, "\n") + "\n");
}
template <typename... Values>
void print_line(fmt::format_string<Values...> format, Values&&... values) {
  fmt::print("{}\n", without_controls(fmt::format(format, std::forward<Values>(values)...)));
}

/// Returns "7" or "7 to 1,024".
std::string format_range(uint64_t least, uint64_t most);
/// Returns at most three significant digits with a unit prefix: "1.25 M", "830 k", "12".
std::string format_rate(double per_second);
/// Returns "830 ms", "12 s", "1:05" or "2:01:05".
std::string format_seconds(double seconds);

/// Shows on standard error how far a command is. On a terminal it rewrites a line, or a few, at the bottom; elsewhere
/// (a file, a pipe, a dumb terminal) it writes whole lines, but rarely. Not thread-safe.
class LiveLine {
 public:
  using Clock = std::chrono::steady_clock;
  // The minimum time between two lines, on a terminal and elsewhere.
  static constexpr Clock::duration terminal_pace = std::chrono::milliseconds(200), file_pace = std::chrono::seconds(10);

  LiveLine();
  /// For tests. `rewritable`: `out` is treated as a terminal.
  LiveLine(std::FILE* out, bool rewritable, Clock::time_point start);
  ~LiveLine() { clear(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  /// Returns whether enough time has passed since the start, or since the last line, to show the next line.
  bool due(Clock::time_point now = Clock::now()) const noexcept;
  /// Shows `text`, whether a line is due or not. On a terminal the text is cut at the terminal's width.
  void show(std::string_view text, Clock::time_point now = Clock::now());
  /// Shows several lines on a terminal, but not more than it has room for. Precondition: on_terminal().
  void show_lines(const std::vector<std::string>& lines, Clock::time_point now = Clock::now());
  /// Removes what is shown from the terminal.
  void clear();

  bool on_terminal() const noexcept { return rewritable_; }
  /// Returns how many columns of the terminal a line may have.
  size_t columns() const { return room().columns; }

 private:
  struct Room {
    size_t columns, lines;
  };
  Room room() const;
  /// Returns the control characters that move the cursor to the beginning of what is shown.
  std::string to_begin() const;

  std::FILE* const out_;
  const bool rewritable_;
  Clock::time_point shown_at_;
  size_t shown_ = 0;  // how many lines are on the terminal
};

/// Shows how far a command is: "verifying 43 %, 1.2 GiB/s, 12 s left". If it does not count bytes: "dumping: 1,234 steps
/// of 5,000, 830 steps/s, 5 s left". Thread-safe.
class Progress {
 public:
  /// `unit` is a noun in the singular, for what is counted; empty: bytes. `total` may be 0 if it is not known.
  Progress(std::string what, uint64_t total, std::string unit = "")
      : what_(std::move(what)), unit_(std::move(unit)), total_(total) {}

  /// Counts `more` as done.
  void add(uint64_t more);
  void set(uint64_t done, uint64_t total);
  /// Removes the line from the terminal.
  void done();

 private:
  void show() FEEDLINE_REQUIRES(mutex_);

  const std::string what_, unit_;
  Mutex mutex_;
  LiveLine line_ FEEDLINE_GUARDED_BY(mutex_);
  uint64_t done_ FEEDLINE_GUARDED_BY(mutex_) = 0, total_ FEEDLINE_GUARDED_BY(mutex_);
  const LiveLine::Clock::time_point start_ = LiveLine::Clock::now();
};

}  // namespace feedline::tool
