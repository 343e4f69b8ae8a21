// When a command tells how far it is, and how.
#include "tool/common/terminal.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "feedline/error.h"
#include "support/catch.h"
#include "tool/common/interrupt.h"

using namespace feedline::tool;
using feedline::format_count;
using namespace std::chrono_literals;

namespace {

struct Shown {
  explicit Shown(bool rewritable) : line(file, rewritable, start) {}
  ~Shown() {
    line.clear();
    std::fclose(file);
  }
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;
  std::string text() const {
    std::rewind(file);
    std::string bytes(4096, '\0');
    bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
    return bytes;
  }

  const LiveLine::Clock::time_point start{1h};
  std::FILE* const file = std::tmpfile();
  LiveLine line;
};

}  // namespace

TEST_CASE("progress written to a file is one whole line every 10 s") {
  Shown shown(false);
  CHECK_FALSE(shown.line.due(shown.start));
  CHECK_FALSE(shown.line.due(shown.start + 9999ms));
  CHECK(shown.line.due(shown.start + 10s));
  const std::string wide(200, 'x');
  shown.line.show("counting 12 %", shown.start + 13s);
  CHECK_FALSE(shown.line.due(shown.start + 22999ms));
  CHECK(shown.line.due(shown.start + 23s));
  shown.line.show(wide, shown.start + 23s);
  shown.line.clear();
  CHECK(shown.text() == "feedline: counting 12 %\nfeedline: " + wide + "\n");
}

TEST_CASE("a terminal's line is rewritten five times a second, and taken away") {
  Shown shown(true);
  CHECK_FALSE(shown.line.due(shown.start + 199ms));
  CHECK(shown.line.due(shown.start + 200ms));
  shown.line.show("counting 12 %", shown.start + 200ms);
  CHECK_FALSE(shown.line.due(shown.start + 399ms));
  CHECK(shown.line.due(shown.start + 400ms));
  shown.line.show(std::string(200, 'x'), shown.start + 400ms);
  shown.line.clear();
  shown.line.clear();
  CHECK(shown.text() == "\rcounting 12 %\x1b[K\x1b[J\r" + std::string(79, 'x') + "\x1b[K\x1b[J\r\x1b[J");
}

TEST_CASE("several lines are rewritten, and taken away, too") {
  Shown shown(true);
  shown.line.show_lines({"a", std::string(200, 'x'), "c"});
  shown.line.show_lines({"d", "e"});
  shown.line.clear();
  shown.line.show_lines(std::vector<std::string>(100, "f"));  // a terminal of unknown size is taken to have 24 lines
  const std::string text = shown.text();
  CHECK_THAT(text, Catch::StartsWith("\ra\x1b[K\r\n" + std::string(79, 'x') +
                                     "\x1b[K\r\nc\x1b[K\x1b[J"
                                     "\r\x1b[2Ad\x1b[K\r\ne\x1b[K\x1b[J"
                                     "\r\x1b[1A\x1b[J\rf\x1b[K\r\nf"));
  CHECK(std::ranges::count(text, 'f') == 23);
}

TEST_CASE("progress that cannot be written is lost, and ends nothing") {
  std::FILE* const full = std::fopen("/dev/full", "w");
  REQUIRE(full);
  std::setvbuf(full, nullptr, _IONBF, 0);  // as standard error
  for (const bool rewritable : {false, true}) {
    LiveLine line(full, rewritable, {});
    CHECK_NOTHROW(line.show("counting 12 %"));
    CHECK_NOTHROW(line.clear());
  }
  std::fclose(full);
}

TEST_CASE("numbers of things") {
  CHECK(format_count(0, "step") == "0 steps");
  CHECK(format_count(1, "step") == "1 step");
  CHECK(format_count(1234, "bad record") == "1,234 bad records");
}

TEST_CASE("Ctrl-C, kill and a closed terminal are noted, and handlers are restored") {
  const auto nothing = [](int) {};
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const auto before = std::signal(number, nothing);
    {
      const Interrupt interrupt;
      CHECK_FALSE(Interrupt::happened());
      CHECK_NOTHROW(Interrupt::check());
      std::raise(number);
      CHECK(Interrupt::happened());
      CHECK_THROWS_WITH(Interrupt::check(), Catch::Contains("interrupted"));
    }
    CHECK(std::signal(number, before) == static_cast<void (*)(int)>(nothing));
  }
}

TEST_CASE("a command that works on without looking at the flag is ended by the first signal") {
  for (const bool looks : {true, false}) {
    const pid_t child = fork();
    if (child == 0) {
      const auto cpu_s = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
      const auto start = std::chrono::steady_clock::now();
      const double cpu = cpu_s();
      const Interrupt interrupt;
      while (std::chrono::steady_clock::now() - start < 3s || cpu_s() - cpu < 2)
        if (looks) Interrupt::check();
      std::raise(SIGTERM);
      _exit(Interrupt::happened() ? 7 : 8);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (looks)
      CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
    else
      CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM));
  }
}

TEST_CASE("a closed terminal is not noted under nohup") {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const Interrupt interrupt;
    std::raise(SIGHUP);
    CHECK_FALSE(Interrupt::happened());
  }
  CHECK(std::signal(SIGHUP, before) == SIG_IGN);
}
