// Fails the n-th call of every system call of the library, for n = 1, 2, ... until none is left to fail.
#include <cstdio>

#include "base/syscall_hooks.h"
#include "data.h"
#include "support/catch.h"
#include "support/process.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("whatever call fails, the feed is right or says what is wrong") {
  const Data data({1500, 2500});
  const Data packed({1500, 10}, Compression::gzip);
  int failures = 0, errors = 0;
  const auto run = [&](const Data& source, BackendKind backend) {
    Options options = replicas(2);
    options.io.backend = backend;
    try {
      Feeder feeder(source.pipeline("batch { global_batch_size: 100 last_batch_policy: PAD }"), options);
      std::vector<int64_t> all;
      for (int64_t step = 0; step < feeder.steps_per_epoch(); step++)
        for (int r = 0; r < 2; r++) {
          Epoch got;
          add_batch(got, feeder.next(r));
          const auto ids = got.all();
          all.insert(all.end(), ids.begin(), ids.end());
        }
      CHECK(all == numbers(source.count()));
    } catch (const Error& error) {
      CHECK(error.message().size() > 10);
      errors++;
    }
  };
  for (const BackendKind backend : {BackendKind::automatic, BackendKind::pread}) run(data, backend);
  const size_t files = open_descriptors();
  for (const BackendKind backend : {BackendKind::automatic, BackendKind::pread})
    for (const Data* source : {&data, &packed})
      for (SyscallHook* hook : SyscallHook::all())
        for (int64_t n = 1;; n++) {
          hook->fail_nth_call(n);
          INFO(hook->name() << ", call " << n);
          run(*source, backend);
          const bool fired = !hook->pending();
          hook->fail_nth_call(0);
          CHECK(open_descriptors() == files);
          if (!fired) break;
          failures++;
        }
  std::printf("%d injected failures of %zu kinds of call; %d of them ended a run with an error\n", failures,
              SyscallHook::all().size(), errors);
  CHECK(failures > 20);
  CHECK(errors > 5);
}
