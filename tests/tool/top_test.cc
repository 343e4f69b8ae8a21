// feedline top and run: feeds in a terminal.
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "pipelines.h"
#include "support/catch.h"
#include "tool.h"

using namespace feedline;
using namespace feedline::test;

namespace {

using Clock = std::chrono::steady_clock;

/// Returns `top --once` of the address, asked again until the feed has begun.
ToolResult top_once(const std::string& address) {
  for (const auto until = Clock::now() + std::chrono::minutes(1);;) {
    ToolResult result = run_tool({"top", "--once", address});
    if (result.code == 0 || Clock::now() > until) return result;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// The tool in a terminal of its own.
class InTerminal {
 public:
  explicit InTerminal(const std::vector<std::string>& arguments) : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    grantpt(master_);
    unlockpt(master_);
    const std::string name = ptsname(master_);
    const winsize size{.ws_row = 30, .ws_col = 70, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(master_, TIOCSWINSZ, &size);
    std::vector<char*> argv = {const_cast<char*>(FEEDLINE_TOOL)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    child_ = fork();
    if (child_ > 0) return;
    setsid();  // so that the terminal's Ctrl-C is for the child
    const int terminal = open(name.c_str(), O_RDWR);
    ioctl(terminal, TIOCSCTTY, 0);
    if (dup2(terminal, 0) == 0 && dup2(terminal, 1) == 1 && dup2(terminal, 2) == 2) execv(FEEDLINE_TOOL, argv.data());
    _exit(127);
  }
  ~InTerminal() {
    close(master_);
    if (child_ > 0) kill(child_, SIGKILL), waitpid(child_, nullptr, 0);
  }

  void type(char key) const { REQUIRE(write(master_, &key, 1) == 1); }
  /// Returns whether Ctrl-C sends a signal.
  bool has_signals() const {
    termios mode{};
    REQUIRE(tcgetattr(master_, &mode) == 0);
    return (mode.c_lflag & ISIG) != 0;
  }
  /// Returns what is shown, once it has `text` in it.
  std::string shown_with(const std::string& text) {
    const auto until = Clock::now() + std::chrono::minutes(1);
    while (shown_.find(text) == std::string::npos && Clock::now() < until) {
      pollfd ready{master_, POLLIN, 0};
      char bytes[4096];
      if (poll(&ready, 1, 100) <= 0) continue;
      const ssize_t n = read(master_, bytes, sizeof bytes);
      if (n <= 0) break;
      shown_.append(bytes, static_cast<size_t>(n));
    }
    return shown_;
  }
  int exit_code() {
    int status = 0;
    while (waitpid(std::exchange(child_, -1), &status, 0) < 0 && errno == EINTR) {
    }
    return WEXITSTATUS(status);
  }

 private:
  const int master_;
  pid_t child_ = -1;
  std::string shown_;
};

}  // namespace

TEST_CASE("top shows where feeds are, what bounds them, and how busy their stages are") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 100")),
                    address = "unix:" + dir.file("feed");
  const Tool feed({"run", pipeline, "--step-ms", "20", "--epochs", "1000000", "--monitor", address});
  const ToolResult one = top_once(address);
  INFO(one.out << one.err);
  REQUIRE(one.code == 0);
  using Catch::Contains;
  CHECK_THAT(one.out, Catch::StartsWith(address + "\nrank 0 of 1   epoch 0, step "));
  CHECK_THAT(one.out, Contains(" of 30") && Contains("records/s") && Contains("  read ") && Contains("  parse ") &&
                          Contains("  unpack 0 ") && Contains(" threads   queue "));

  const ToolResult two = run_tool({"top", "--once", address, "unix:" + dir.file("nobody")});
  CHECK(two.code == 1);
  CHECK_THAT(two.out, Contains("\nrank 0 of 1") && Contains("nobody   connect: No such file or directory\n"));
  CHECK(run_tool({"top", "nonsense"}).code == 2);
  CHECK(run_tool({"top"}).code == 2);

  InTerminal live({"top", address});
  // The first screens may say that it is too early to tell.
  live.shown_with("The trainer is the slower one");
  const std::string shown = live.shown_with("q: quit");  // the last line of a screen
  CHECK_THAT(shown, Contains("\x1b[?1049h") && Contains("The trainer is the slower one") && Contains("q: quit"));
  live.type('x');  // no key that means anything
  live.type('q');
  CHECK_THAT(live.shown_with("\x1b[?1049l"), Contains("\x1b[?25h"));
  CHECK(live.exit_code() == 0);

  InTerminal impatient({"top", address});
  impatient.shown_with("q: quit");
  CHECK_FALSE(impatient.has_signals());
  for (int i = 0; i < 3; i++) impatient.type('\x03');  // Ctrl-C
  CHECK_THAT(impatient.shown_with("\x1b[?1049l"), Contains("\x1b[?25h\x1b[?1049l"));
  CHECK(impatient.exit_code() == 0);
}

TEST_CASE("run shows the same in a terminal, and takes it away at its end") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 100"));
  InTerminal live({"run", pipeline, "--step-ms", "20", "--epochs", "1000000"});
  using Catch::Contains;
  live.shown_with("The trainer is the slower one");
  CHECK_THAT(live.shown_with("unpack 0 "), Contains("step ") && Contains("rank 0 of 1   epoch ") &&
                                               Contains("The trainer is the slower one") && Contains("records/s") &&
                                               Contains("  read "));
  live.type('\x03');  // Ctrl-C
  const std::string all = live.shown_with("messages: work items given");
  CHECK_THAT(all.substr(all.find("unpack 0 ")), Contains("A\x1b[J") && Contains("then interrupted"));
  CHECK(live.exit_code() == 0);
}

TEST_CASE("a run that goes on from a state shows only the steps that are left") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 100")),
                    state = dir.file("state");
  REQUIRE(run_tool({"run", pipeline, "--state", state, "--steps", "20"}).code == 0);
  InTerminal live({"run", pipeline, "--state", state, "--step-ms", "100000"});
  CHECK_THAT(live.shown_with("rank 0 of 1"), Catch::Contains("/10"));  // of 30 steps
  live.type('\x03');                                                   // Ctrl-C
  live.shown_with("messages: work items given");
  CHECK(live.exit_code() == 0);
}

TEST_CASE("top says why a feed has ended, and what cannot be asked") {
  const TempDir dir;
  setenv("FEEDLINE_MONITOR_TOKEN", "secret", 1);
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 100")),
                    address = "unix:" + dir.file("feed");
  const Tool feed({"run", pipeline, "--step-ms", "20", "--epochs", "1000000", "--monitor", address});
  CHECK(top_once(address).code == 0);
  setenv("FEEDLINE_MONITOR_TOKEN", "guess", 1);
  const ToolResult refused = run_tool({"top", address});
  CHECK(refused.code == 1);
  CHECK_THAT(refused.out, Catch::Contains("401: the given token is not the token of this monitor"));
  unsetenv("FEEDLINE_MONITOR_TOKEN");
  CHECK_THAT(
      run_tool({"top", address}).out,
      Catch::Contains("401: the monitor needs a login: the user is feedline, and the password is the monitor's token; "
                      "set the environment variable FEEDLINE_MONITOR_TOKEN to this token"));
}

TEST_CASE("top wraps what is wider than the terminal, so that nothing scrolls away") {
  const TempDir dir;
  std::string address = "unix:" + dir.file("");
  REQUIRE(address.size() < 70);
  address.resize(70, 'a');  // as wide as the terminal
  InTerminal live({"top", address});
  std::string shown = live.shown_with("q: quit");
  std::erase(shown, '\r');
  CHECK_THAT(shown, Catch::Contains(address + "\x1b[K\n  connect: No such file or directory\x1b[K\nq: quit"));
  live.type('q');
  CHECK(live.exit_code() == 1);
}

TEST_CASE("top says that something else answers, whatever it says") {
  const TempDir dir;
  const std::string path = dir.file("other"), address = "unix:" + path;
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::strncpy(at.sun_path, path.c_str(), sizeof at.sun_path - 1);
  REQUIRE(bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  REQUIRE(listen(listener, 1) == 0);
  for (const std::string answer : {"200 OK\r\n\r\n[1, 2]", "200 OK\r\n\r\n{}", "200 OK\r\n\r\n\"text\"",
                                   "200 OK\r\n\r\n{\"records\": 1, \"error\": null, \"wall_s\": 1}", "200 OK\r\n\r\n",
                                   "500 No\r\n\r\n\x1b]0;owned\x07"}) {
    Tool top({"top", "--once", address});
    const int client = accept(listener, nullptr, nullptr);
    REQUIRE(client >= 0);
    char request[4096];
    CHECK(read(client, request, sizeof request) > 0);
    const std::string text = "HTTP/1.1 " + answer;
    CHECK(write(client, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    close(client);
    const ToolResult result = top.wait();
    INFO(result.out << result.err);
    CHECK(result.code == 1);
    CHECK(result.out.find(address + "   ") == 0);
    CHECK(result.err.empty());
    CHECK((result.out.find("exception") == std::string::npos && result.out.find('\x1b') == std::string::npos));
  }
  close(listener);
}
