// Random pipelines, each fed in every way that must make no difference: see tests/README.md.
//
//   property_test [--pipelines N] [--seconds N] [--seed S] [--keep FOLDER]
//
// Each pipeline is fed in a process of its own, so that a crash or a hang is a failure like any other. The program
// simplifies a failing pipeline as long as it still fails, prints it as text that can be pasted, and exits with 1.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "property/case.h"
#include "property/data_files.h"
#include "property/feeds.h"
#include "support/temp_dir.h"

namespace {

using namespace feedline::test;
using Clock = std::chrono::steady_clock;

// Far more than any case takes, even under sanitizers on a busy machine.
constexpr auto hang = std::chrono::seconds(120);

struct Outcome {
  enum class Kind { same, refused, fails } kind;
  std::string told;
};

// Runs `body` in a process of its own. `body` returns an exit code and appends to a text.
template <typename Body>
Outcome in_process(const Body& body) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::perror("pipe"), std::abort();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) std::perror("fork"), std::abort();
  if (child == 0) {
    std::string told;
    const int code = body(told);
    for (size_t at = 0; at < told.size();) {
      const ssize_t n = write(ends[1], told.data() + at, told.size() - at);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
    _exit(code);
  }
  close(ends[1]);
  std::string told;
  const auto until = Clock::now() + hang;
  bool hangs = false;
  for (char buffer[4096];;) {
    pollfd wait{.fd = ends[0], .events = POLLIN, .revents = 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    const int ready = left > 0 ? poll(&wait, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      hangs = true;
      kill(child, SIGKILL);
      break;
    }
    const ssize_t n = read(ends[0], buffer, sizeof buffer);
    if (n <= 0) break;
    told.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (hangs) return {Outcome::Kind::fails, told + fmt::format("hangs: no end after {} s\n", hang.count())};
  if (WIFSIGNALED(status))
    return {Outcome::Kind::fails, told + fmt::format("crashes: signal {}\n", strsignal(WTERMSIG(status)))};
  const int code = WEXITSTATUS(status);
  if (code == static_cast<int>(Verdict::same)) return {Outcome::Kind::same, told};
  if (code == static_cast<int>(Verdict::refused)) return {Outcome::Kind::refused, told};
  return {Outcome::Kind::fails, told + (code == 1 ? "" : fmt::format("exit code {}\n", code))};
}

Outcome try_in_process(const Case& c, const std::string& folder) {
  return in_process([&](std::string& told) { return static_cast<int>(try_case(c, folder, told)); });
}

// Simplifies the case step by step, as long as it still fails.
Case simplest(Case c, const std::string& folder, std::string& told) {
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (const Case& simpler : simpler_cases(c)) {
      const Outcome outcome = try_in_process(simpler, folder);
      if (outcome.kind != Outcome::Kind::fails) continue;
      c = simpler;
      told = outcome.told;
      goes_on = true;
      break;
    }
  }
  return c;
}

uint64_t number(const char* text) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(text, &end, 10);
  if (end == text || *end) {
    fmt::print(stderr, "property_test: '{}' is not a number\n", text);
    std::exit(2);
  }
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t pipelines = 300, seconds = 0, seed = 1;
  std::string keep;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) return fmt::print(stderr, "property_test: {} wants a value\n", flag), 2;
    if (flag == "--pipelines")
      pipelines = number(argv[i + 1]);
    else if (flag == "--seconds")
      seconds = number(argv[i + 1]), pipelines = UINT64_MAX;
    else if (flag == "--seed")
      seed = number(argv[i + 1]);
    else if (flag == "--keep")
      keep = argv[i + 1];
    else
      return fmt::print(stderr, "property_test: there is no {}\n", flag), 2;
  }

  const TempDir temporary;
  const std::string folder = keep.empty() ? temporary.path() : keep;
  write_data_files(folder);
  if (in_process([&](std::string&) { return make_indexes(folder), 0; }).kind != Outcome::Kind::same)
    return fmt::print(stderr, "property_test: the indexes cannot be made\n"), 1;
  hide_damage(folder);

  uint64_t same = 0, refused = 0, failed = 0;
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  for (uint64_t n = 0; n < pipelines && (seconds == 0 || elapsed() < static_cast<double>(seconds)); n++) {
    std::mt19937_64 random(seed * 1'000'003 + n);
    const Case drawn = draw_case(random);
    Outcome outcome = try_in_process(drawn, folder);
    same += outcome.kind == Outcome::Kind::same;
    refused += outcome.kind == Outcome::Kind::refused;
    if (outcome.kind == Outcome::Kind::fails) {
      failed++;
      std::string told = outcome.told;
      const Case simple = simplest(drawn, folder, told);
      fmt::print("--- pipeline {} of seed {} fails: {}; data: {}\n{}{}\n", n, seed, how_of(simple), folder,
                 text_of(simple, false, 1, "", fmt::format("index-{}", simple.stride)), told);
      std::fflush(stdout);
      if (failed == 20) break;
    }
    if (n % 1000 == 999) fmt::print(stderr, "{} pipelines, {:.0f} s, {} fail\n", n + 1, elapsed(), failed);
  }
  fmt::print("{} pipelines of seed {}: {} the same in every way, {} refused, {} fail; {:.0f} s\n",
             same + refused + failed, seed, same, refused, failed, elapsed());
  // Most pipelines must be fed, or the test shows nothing.
  return failed > 0 || refused * 3 > same + refused ? 1 : 0;
}
