#include "tool/common/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/byte_size.h"

namespace feedline::tool {

void show_text(std::FILE* out, std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

std::string format_range(uint64_t least, uint64_t most) {
  return least == most ? format_count(least) : fmt::format("{} to {}", format_count(least), format_count(most));
}

std::string format_rate(double per_second) {
  constexpr std::array units = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  while (per_second >= 999.5 && unit + 1 < units.size()) {
    per_second /= 1000;
    unit++;
  }
  const int decimals = per_second >= 99.95 || (unit == 0 && per_second == std::floor(per_second)) ? 0
                       : per_second >= 9.995                                                      ? 1
                                                                                                  : 2;
  return fmt::format("{:.{}f}{}", per_second, decimals, units[unit]);
}

std::string format_seconds(double seconds) {
  if (!(seconds < 1e9)) return "?";
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

namespace {

bool is_terminal() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && terminal && std::string_view(terminal) != "dumb";
}

}  // namespace

LiveLine::LiveLine() : LiveLine(stderr, is_terminal(), Clock::now()) {}

LiveLine::LiveLine(std::FILE* out, bool rewritable, Clock::time_point start)
    : out_(out), rewritable_(rewritable), shown_at_(start) {}

bool LiveLine::due(Clock::time_point now) const noexcept {
  return now - shown_at_ >= (rewritable_ ? terminal_pace : file_pace);
}

void LiveLine::show(std::string_view text, Clock::time_point now) {
  shown_at_ = now;
  if (!rewritable_) {
    show_text(out_, fmt::format("feedline: {}\n", text));
    return;
  }
  show_lines({std::string(text)}, now);
}

void LiveLine::show_lines(const std::vector<std::string>& lines, Clock::time_point now) {
  shown_at_ = now;
  const Room most = room();
  std::string text = to_begin();
  shown_ = std::min(lines.size(), most.lines);
  for (size_t i = 0; i < shown_; i++) text += (i > 0 ? "\r\n" : "") + lines[i].substr(0, most.columns) + "\x1b[K";
  show_text(out_, text + "\x1b[J");
}

void LiveLine::clear() {
  if (shown_ == 0) return;
  show_text(out_, to_begin() + "\x1b[J");
  shown_ = 0;
}

LiveLine::Room LiveLine::room() const {
  winsize size{};
  if (ioctl(fileno(out_), TIOCGWINSZ, &size) != 0 || size.ws_col < 2 || size.ws_row < 2) return {79, 23};
  // A line that wraps, or that has scrolled off the screen, cannot be rewritten. So one column and one line stay free.
  return {size.ws_col - 1u, size.ws_row - 1u};
}

std::string LiveLine::to_begin() const { return shown_ > 1 ? fmt::format("\r\x1b[{}A", shown_ - 1) : "\r"; }

void Progress::add(uint64_t more) {
  const Lock lock(mutex_);
  done_ += more;
  show();
}

void Progress::set(uint64_t done, uint64_t total) {
  const Lock lock(mutex_);
  done_ = done;
  total_ = total;
  show();
}

void Progress::done() {
  const Lock lock(mutex_);
  line_.clear();
}

void Progress::show() {
  const auto now = LiveLine::Clock::now();
  if (!line_.due(now)) return;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(done_) / elapsed;
  const double left = static_cast<double>(total_ - std::min(done_, total_)) / rate;
  std::string text;
  if (unit_.empty()) {
    const double percent = total_ ? 100.0 * static_cast<double>(done_) / static_cast<double>(total_) : 100.0;
    text = fmt::format("{} {:.0f} %, {}/s", what_, std::min(percent, 100.0),
                       format_byte_size(static_cast<uint64_t>(rate)));
  } else {
    text = fmt::format("{}: {}{}, {} {}s/s", what_, format_count(done_, unit_),
                       total_ ? " of " + format_count(total_) : "", format_rate(rate), unit_);
  }
  if (total_ || unit_.empty()) text += fmt::format(", {} left", format_seconds(left));
  line_.show(text, now);
}

}  // namespace feedline::tool
