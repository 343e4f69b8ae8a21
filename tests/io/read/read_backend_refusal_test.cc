// What containers and limits forbid. Each is really forbidden, in a child process.
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "backend_rig.h"
#include "feedline/error.h"
#include "support/catch.h"
#include "support/forbid_syscall.h"
#include "support/log_lines.h"
#include "support/process.h"
#include "support/skip.h"

using namespace feedline;
using namespace feedline::io;
using namespace feedline::io::test;
using feedline::test::forbid_syscall;
using feedline::test::TempDir;

namespace {

constexpr int cannot = 77;
const Mode uring{"uring", true, Toggle::off}, uring_registered{"uring registered", true, Toggle::off, true};

// Runs in the child: prints what differs from what is expected.
int failures = 0;
void expect(bool holds, const std::string& what) {
  if (holds) return;
  failures++;
  std::fprintf(stderr, "not so: %s\n", what.c_str());
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void check_child(const std::function<int()>& body) {
  const int code = feedline::test::in_child(body);
  if (code == cannot)
    feedline::test::skip("this machine does not let the test forbid it");
  else
    CHECK(code == 0);
}

bool drop_lock_capability() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  const uint32_t bit = 1u << CAP_IPC_LOCK;
  data[0].effective &= ~bit;
  data[0].permitted &= ~bit;
  data[0].inheritable &= ~bit;
  return syscall(SYS_capset, &header, data) == 0;
}

}  // namespace

TEST_CASE("io_uring refused: automatic reads with pread and says why, once; by name it is an error with advice") {
  const int refusal = GENERATE(EPERM, ENOSYS);
  if (!io_uring_allowed()) return feedline::test::skip("io_uring is refused anyway");
  const TempDir dir;
  const auto files = write_files(dir, {100'000});
  check_child([&] {
    if (!forbid_syscall(SYS_io_uring_setup, refusal)) return cannot;
    const feedline::test::LogLines log;
    const Slots memory(1, 128 << 10);
    Outcomes outcomes(1);
    BackendOptions options;
    const auto backend = make_read_backend(files, options, outcomes.done());
    const std::string why = "io_uring_setup: " + std::generic_category().message(refusal);
    expect(backend->description() == "pread (page cache; " + why + ")", backend->description());
    const std::vector<std::string> lines = log.lines();
    expect(lines.size() == 1 && contains(lines[0], why), "logged once");
    const Range range{0, 1, 99'999};
    const Read read = read_of(range, memory[0], 0);
    backend->submit({&read, 1});
    outcomes.wait_for(1);
    expect(outcomes.error(0) == 0 && is_exact(range, memory[0]), "read exactly");

    options.backend = BackendKind::uring;
    try {
      make_read_backend(files, options, outcomes.done());
      expect(false, "throws");
    } catch (const Error& error) {
      expect(error.category() == Category::io_error && contains(error.message(), why) &&
                 contains(error.message(), refusal == EPERM ? "io_uring" : "5.6"),
             error.what());
    }
    return failures;
  });
}

TEST_CASE("a thread that cannot be started is not blamed on io_uring") {
  if (!io_uring_allowed()) return feedline::test::skip("io_uring is refused");
  BackendOptions options;
  options.backend = BackendKind::uring;
  feedline::test::find_hook("start thread")->fail_nth_call(1);
  CHECK_THROWS_WITH(make_read_backend({}, options, [](void*, int) {}),
                    Catch::Contains("cannot start reading: starting a thread") && !Catch::Contains("io_uring"));
}

TEST_CASE("memory that may not be locked is read into unregistered, which is said") {
  if (!io_uring_allowed()) return feedline::test::skip("io_uring is refused");
  const TempDir dir;
  const auto files = write_files(dir, {100'000});
  check_child([&] {
    const rlimit limit{64 << 10, 64 << 10};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || !drop_lock_capability()) return cannot;
    Rig rig(uring_registered, files);
    expect(rig.read({{0, 0, 100'000}, {0, 5, 7}}) == std::vector<int>{0, 0}, "read exactly");
    expect(contains(rig.backend->description(), "buffers not registered: Cannot allocate memory"),
           rig.backend->description());
    return failures;
  });
}

TEST_CASE("io_uring forbidden while it is in use: reads fail, stop returns") {
  if (!io_uring_allowed()) return feedline::test::skip("io_uring is refused");
  const TempDir dir;
  const auto files = write_files(dir, {100'000});
  check_child([&] {
    const feedline::test::LogLines unseen;
    Rig rig(uring, files);
    expect(rig.read(Range{0, 0, 100'000}) == 0, "read before");
    if (!forbid_syscall(SYS_io_uring_enter, EPERM)) return cannot;
    rig.read(Range{0, 0, 10});  // a wait that was already under way may still serve it
    expect(rig.read({{0, 0, 10}, {0, 5, 10}}) == std::vector<int>{EPERM, EPERM}, "fails after");
    rig.backend->stop();
    expect(rig.read(Range{0, 0, 10}) == EPERM, "stays so");
    return failures;
  });
}

TEST_CASE("stop cancels reads that nothing else would end") {
  if (!io_uring_allowed()) return feedline::test::skip("io_uring is refused");
  const TempDir dir;
  const auto files = write_files(dir, {1000});
  const Slots memory(12, 8192);
  Outcomes outcomes(12);
  BackendOptions options;
  options.depth = 8;  // 8 wait in the kernel, 3 in the queue
  const auto backend = make_uring_backend(std::make_shared<FileTable>(files, Toggle::off), options, outcomes.done());
  const Read first = read_of({0, 0, 1000}, memory[0], 0);
  backend->submit({&first, 1});
  outcomes.wait_for(1);

  // The open file becomes a pipe without a writer, as if its disk no longer answered.
  REQUIRE(mkfifo(dir.file("pipe").c_str(), 0600) == 0);
  const int pipe = open(dir.file("pipe").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(pipe >= 0);
  int replaced = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the entry of the iterator's own descriptor
    if (std::filesystem::read_symlink(entry, gone) != files[0].uri) continue;
    REQUIRE(dup2(pipe, std::stoi(entry.path().filename())) >= 0);
    replaced++;
  }
  REQUIRE(replaced == 1);
  std::vector<Read> reads;
  for (size_t i = 1; i < 12; i++) reads.push_back(read_of({0, 0, 1000}, memory[i], i));
  backend->submit(reads);
  backend->stop();
  CHECK(outcomes.complete() == 12);
  CHECK(outcomes.error(0) == 0);
  for (size_t i = 1; i < 12; i++) CHECK(outcomes.error(i) == ECANCELED);
  close(pipe);
}
