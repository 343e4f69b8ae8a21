// feedline top: watches feeds in a terminal, through their monitors.
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/log.h"
#include "tool/commands/commands.h"
#include "tool/commands/flags.h"
#include "tool/common/interrupt.h"
#include "tool/common/threads.h"
#include "tool/feeding/feed_view.h"
#include "trainer_bridge/monitor/http_client.h"

namespace feedline::tool {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto patience = 2s;  // how long top waits for an answer
constexpr size_t usual_width = 100;
constexpr char ctrl_c = '\x03';

struct TopArgs {
  std::vector<std::string> addresses;
  bool once = false;
};

/// What is known of one feed.
struct Watched {
  explicit Watched(const std::string& given) : text(given), address(parse_http_address("ADDRESS", given)) {}

  std::string text;  // the address, as the user gave it
  HttpAddress address;
  Json before, now;  // the last two reports; null: none
  Clock::time_point before_at, now_at;
  std::string trouble;  // why the last answer is missing; empty: it is not missing
  bool whole = true;    // the feed has not ended with an error

  void ask(std::string_view token) {
    try {
      Json report = parse_json(http_get(address, "/report.json", token, Clock::now() + patience));
      feed_view(report, {}, report.at("wall_s").get<double>(), usual_width);  // throws if this is no report
      // A feed whose state was restored counts its records from 0 again. Then the report before cannot be used for
      // rates.
      const bool goes_on = now.is_object() && report.at("records") >= now.at("records");
      before = goes_on ? std::move(now) : Json();
      before_at = now_at;
      whole = report.at("error").is_null();
      now = std::move(report);
      now_at = Clock::now();
      trouble.clear();
    } catch (const Error& error) {
      trouble = without_controls(error.message());
      if (token.empty() && trouble.starts_with("401"))
        trouble += "; set the environment variable FEEDLINE_MONITOR_TOKEN to this token";
    } catch (const Json::exception&) {
      trouble = "the server is not a feedline monitor of this version; check the address and the feed's version";
    }
  }

  std::vector<std::string> lines(size_t width) const {
    std::vector<std::string> lines = {without_controls(text)};
    if (!trouble.empty()) lines[0] += "   " + trouble;
    if (now.is_null()) return lines;
    const double seconds =
        before.is_null() ? now.at("wall_s").get<double>() : std::chrono::duration<double>(now_at - before_at).count();
    for (std::string& line : feed_view(now, before, seconds, width)) lines.push_back(std::move(line));
    return lines;
  }
};

/// Asks all feeds at the same time.
void ask_all(std::vector<Watched>& feeds, std::string_view token) {
  Threads threads;
  for (Watched& feed : feeds) threads.start([&feed, token] { feed.ask(token); });
}

/// The terminal's alternate screen, without a cursor; keys are read without waiting for Enter. The destructor restores
/// the terminal. Ctrl-C is read as a key: a second signal would end the process without the destructor.
class Screen {
 public:
  Screen() {
    has_keys_ = tcgetattr(STDIN_FILENO, &keys_) == 0;
    if (has_keys_) {
      termios raw = keys_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
      tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    print("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    print("\x1b[?25h\x1b[?1049l");
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &keys_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  static winsize size() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20 || size.ws_row < 3)
      return {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    return size;
  }

  void show(const std::vector<std::string>& lines) const {
    const winsize room = size();
    std::vector<std::string> rows;
    for (const std::string& line : lines) wrap(line, room.ws_col, rows);
    rows.resize(std::min<size_t>(rows.size(), room.ws_row - 1u));
    std::string text = "\x1b[H";
    for (const std::string& row : rows) text += row + "\x1b[K\r\n";
    print(text + "q: quit\x1b[J");
  }

  /// Waits at most `time`. Returns whether the user wants to quit.
  bool quits_within(std::chrono::milliseconds time) const {
    pollfd key{has_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
    if (poll(&key, 1, static_cast<int>(time.count())) <= 0) return Interrupt::happened();
    char pressed = 'q';  // remains 'q' if the terminal has gone
    return read(STDIN_FILENO, &pressed, 1) <= 0 || pressed == 'q' || pressed == 'Q' || pressed == ctrl_c;
  }

 private:
  static void print(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  termios keys_{};
  bool has_keys_ = false;
};

std::vector<std::string> lines_of(const std::vector<Watched>& feeds, size_t width) {
  std::vector<std::string> all;
  for (const Watched& feed : feeds) {
    if (!all.empty()) all.emplace_back();
    for (std::string& line : feed.lines(width)) all.push_back(std::move(line));
  }
  return all;
}

int watch(const TopArgs& args) {
  const char* const given = std::getenv("FEEDLINE_MONITOR_TOKEN");
  const std::string token = given ? given : "";
  std::vector<Watched> feeds;
  for (const std::string& address : args.addresses) {
    try {
      feeds.emplace_back(address);
    } catch (const Error& error) {
      throw UsageError(error.message());
    }
  }
  const Interrupt interrupt;
  ask_all(feeds, token);
  if (args.once || isatty(STDOUT_FILENO) == 0) {
    for (const std::string& line : lines_of(feeds, usual_width)) fmt::print("{}\n", line);
  } else {
    const Screen screen;
    do {
      screen.show(lines_of(feeds, Screen::size().ws_col));
      if (screen.quits_within(1s)) break;
      ask_all(feeds, token);
    } while (true);
  }
  return std::ranges::all_of(feeds, [](const Watched& feed) { return feed.trouble.empty() && feed.whole; }) ? 0 : 1;
}

}  // namespace

void add_top(CLI::App& app, Run& run) {
  const auto [command, args] =
      add_command(app, run, "top", "watch feeds in a terminal, through their monitors (run --monitor)", watch);
  add_option(command, "ADDRESS ...", args.addresses,
             "addresses of monitors, such as 127.0.0.1:9400 or unix:/run/feed.sock; the environment variable "
             "FEEDLINE_MONITOR_TOKEN holds their password")
      ->required();
  command.add_flag("--once", args.once, "print the current state once and exit; the default without a terminal");
}

}  // namespace feedline::tool
