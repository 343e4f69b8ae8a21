#include "tool/common/threads.h"

#include <atomic>

#include "base/syscall_hooks.h"
#include "support/catch.h"

using namespace feedline;

TEST_CASE("a thread that cannot be started is an Error that says so, and those before it are joined") {
  std::atomic<int> ended{0};
  std::atomic<bool> go{false};
  {
    tool::Threads threads;
    for (SyscallHook* hook : SyscallHook::all())
      if (std::string(hook->name()) == "start thread") hook->fail_nth_call(3);
    for (int i = 0; i < 2; i++)
      threads.start([&] {
        go.wait(false);
        ended++;
      });
    try {
      threads.start([&] { ended++; });
      FAIL("the third thread was started");
    } catch (const Error& error) {
      CHECK(error.category() == Category::io_error);
      CHECK(
          error.message().starts_with("starting a thread (ulimit -u and pids.max of the cgroup limit the number of "
                                      "threads; raise these limits): "));
    }
    CHECK(ended == 0);
    go = true;
    go.notify_all();
  }
  CHECK(ended == 2);
}
