// Every system call of a backend fails once, at every place. Each read must still complete exactly once, with its data
// or an error, and nothing may be left open or running.
#include <cstdio>
#include <map>

#include "backend_rig.h"
#include "support/catch.h"
#include "support/log_lines.h"
#include "support/process.h"

using namespace feedline;
using namespace feedline::io;
using namespace feedline::io::test;
using feedline::test::TempDir;

namespace {

// The number of reads that one failure may cost. A call that is not named here may cost none.
const std::map<std::string, size_t> cost = {{"completion", 1}, {"open", 1},  {"read", 1},
                                            {"stat", 1},       {"fcntl", 1}, {"io_uring_enter forbidden", SIZE_MAX}};

std::vector<Range> some_ranges(const std::vector<FileId>& files) {
  std::mt19937_64 random(5);
  std::vector<Range> ranges;
  for (int i = 0; i < 24; i++) ranges.push_back(random_range(random, files, 50'000));
  return ranges;
}

}  // namespace

TEST_CASE("the n-th call of each kind fails, for n = 1, 2, ... until none is left") {
  const feedline::test::LogLines unseen;
  const TempDir dir;
  const auto files = write_files(dir, {100'000, 5000, 70'000, 4096, 100});
  const auto ranges = some_ranges(files);
  const std::vector<Mode> found = modes();  // starts a thread here, because a sanitizer then keeps a thread of its own
  const size_t descriptors = feedline::test::open_descriptors(), threads = feedline::test::threads();
  size_t injected_failures = 0, refused = 0;
  for (const Mode& mode : found)
    for (SyscallHook* hook : SyscallHook::all())
      for (int64_t n = 1;; n++) {
        INFO(mode << ": " << hook->name() << " fails at call " << n);
        hook->fail_nth_call(n);
        try {
          Rig rig(mode, files, 50'000, 12, 6, 3);
          const std::vector<int> results = rig.read(ranges);
          const auto known = cost.find(hook->name());
          size_t failed = 0;
          for (int result : results) {
            REQUIRE(result >= 0);
            failed += result != 0;
          }
          REQUIRE(failed <= (known == cost.end() ? 0 : known->second));
        } catch (const std::system_error&) {
          refused++;  // the backend could not start
        }
        const bool fired = !hook->pending();
        hook->fail_nth_call(0);
        REQUIRE(feedline::test::open_descriptors() == descriptors);
        REQUIRE(feedline::test::threads_settle_at(threads));
        if (!fired) break;
        injected_failures++;
      }
  std::printf("%zu failures injected, %zu of them at the start\n", injected_failures, refused);
  CHECK(injected_failures > 50 * found.size());
  CHECK(refused > 0);
}

TEST_CASE("a file system that refuses O_DIRECT: `automatic` reads on, `on` says so") {
  const TempDir dir;
  const auto files = write_files(dir, {100'000});
  for (Mode mode : modes()) {
    if (mode.direct == Toggle::off) continue;
    for (const char* hook : {"open O_DIRECT", "read O_DIRECT"}) {
      INFO(mode << ", " << hook);
      for (const Toggle direct : {Toggle::automatic, Toggle::on}) {
        mode.direct = direct;
        Rig rig(mode, files);
        feedline::test::find_hook(hook)->fail_nth_call(1);
        CHECK(rig.read(Range{0, 1234, 50'000}) == (direct == Toggle::on ? EOPNOTSUPP : 0));
        CHECK_FALSE(feedline::test::find_hook(hook)->pending());
      }
    }
  }
}

TEST_CASE("a kernel that does not know the newer flags gives a plain ring") {
  if (!io_uring_allowed()) return;
  const TempDir dir;
  const auto files = write_files(dir, {100'000, 5000});
  SyscallHook* const flags = feedline::test::find_hook("io_uring_setup flags");
  for (const Mode& mode : modes()) {
    if (!mode.uring) continue;
    INFO(mode);
    flags->fail_nth_call(1);
    Rig rig(mode, files);
    CHECK_FALSE(flags->pending());
    const auto ranges = some_ranges(files);
    CHECK(rig.read(ranges) == std::vector<int>(ranges.size(), 0));
  }
}
