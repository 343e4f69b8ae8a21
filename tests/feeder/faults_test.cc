// Fails the n-th call of every kind that can fail, for n = 1, 2, ... until the run makes fewer calls: system calls,
// starts of threads, and the bodies of the graph's stages.
#include <cstdio>
#include <filesystem>
#include <map>
#include <new>
#include <set>

#include "base/syscall_hooks.h"
#include "data.h"
#include "support/catch.h"
#include "support/log_lines.h"
#include "support/process.h"
#include "support/skip.h"

using namespace feedline;
using namespace feedline::test;

namespace {

/// The kinds of call whose error names no file.
const std::set<std::string> of_no_file = {"list_files", "mmap", "start thread"};

/// Waits up to 10 s for all threads of this library to end. A thread that has been joined may still be listed for a
/// moment.
bool library_threads_end() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const auto one_is_left = [] {
    for (const ThreadStatus& thread : thread_statuses())
      if (thread.name.rfind("feedline", 0) == 0) return true;
    return false;
  };
  while (one_is_left()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

struct Mode {
  const char* name;
  const Data* data;
  IoOptions io;
  bool lazy = false;
  bool replicate = false;  // both replicas are given all rows
};

/// Feeds an epoch and checks every batch. Returns the error that ended the run, if any.
std::optional<Error> feed(const Mode& mode) {
  Options options = replicas(2);
  options.io = mode.io;
  options.threads = 2;  // with two threads the page cache is tried before the backend
  Pipeline pipeline = mode.data->pipeline("batch { global_batch_size: 400 last_batch_policy: PAD }");
  if (mode.replicate) pipeline = pipeline.with("distribute.mode", "REPLICATE");
  if (mode.lazy) {
    const std::string kept = mode.data->dir().file("kept");
    std::filesystem::remove_all(kept);  // makes the data uncounted again
    pipeline = pipeline.with("source.index.mode", "LAZY").with("source.index.dir", kept);
    pipeline = pipeline.with("source.record_limit", "1KiB");
  }
  try {
    Feeder feeder(pipeline, options);
    Epoch got;
    try {
      for (bool more = true; more;)
        for (int r = 0; r < 2; r++) {
          const Batch batch = feeder.next(r);
          more = static_cast<bool>(batch);
          if (more && !(mode.replicate && r == 1)) add_batch(got, batch);
        }
    } catch (...) {
      const auto ids = got.all();
      CHECK(ids == numbers(static_cast<int64_t>(ids.size())));
      throw;
    }
    CHECK(got.all() == numbers(mode.data->count()));
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("no two kinds of call have the same name") {
  std::set<std::string> names;
  for (SyscallHook* hook : SyscallHook::all()) {
    INFO(hook->name());
    CHECK(names.insert(hook->name()).second);
  }
}

TEST_CASE("any failing call: the feed is right, or ends with the reason", "[long]") {
  const LogLines unseen;
  const Data plain({1500, 2500});
  const Data packed({1500, 10}, Compression::gzip);
  std::vector<Mode> modes;
  for (const BackendKind backend : {BackendKind::automatic, BackendKind::pread}) {
    modes.push_back({"plain", &plain, {.backend = backend, .direct = Toggle::automatic}});
    modes.push_back({"gzip", &packed, {.backend = backend, .direct = Toggle::automatic}});
    modes.push_back({"plain, O_DIRECT", &plain, {.backend = backend, .direct = Toggle::on}});
  }
  for (const Data* data : {&plain, &packed}) modes.push_back({"lazy", data, {}, true});
  modes.push_back({"sent on", &plain, {}, false, true});
  if (const auto refused = feed(modes[2])) {
    skip("O_DIRECT: " + std::string(refused->what()));
    std::erase_if(modes, [](const Mode& mode) { return mode.io.direct == Toggle::on; });
  }
  for (const Mode& mode : modes) CHECK_FALSE(feed(mode));
  REQUIRE(library_threads_end());
  const size_t files = open_descriptors();

  std::map<std::string, int> fired;
  int errors = 0, out_of_memory = 0;
  for (const Mode& mode : modes)
    for (SyscallHook* hook : SyscallHook::all()) {
      const std::string name = hook->name();
      if (name.rfind("record ", 0) == 0) continue;  // not a call that can fail: see audit_test.cc
      for (int64_t n = 1;; n++) {
        INFO(mode.name << ", " << name << ", call " << n);
        hook->fail_nth_call(n);
        try {
          if (const auto error = feed(mode)) {
            errors++;
            CHECK(error->category() == Category::io_error);
            CHECK(error->message().size() > 10);
            const bool of_memory = error->message() == "out of memory";  // where other ranks are told
            CHECK(error->place().file.empty() == (of_memory || of_no_file.count(name) > 0));
            if (name == "completion") CHECK(error->place().offset >= 0);
          }
        } catch (const std::bad_alloc&) {
          CHECK(name == "body of a stage");
          out_of_memory++;
        }
        const bool has_fired = !hook->pending();
        hook->fail_nth_call(0);
        CHECK(open_descriptors() == files);
        CHECK(library_threads_end());
        if (!has_fired) break;
        fired[name]++;
      }
    }
  int failures = 0;
  for (const auto& [name, count] : fired) failures += count;
  std::printf("%d injected failures of %zu kinds of call; %d of them ended a run with an error, %d with bad_alloc\n",
              failures, fired.size(), errors, out_of_memory);
  for (const char* name : {"body of a stage", "mmap", "open", "read", "start thread", "stat"}) {
    INFO(name);
    CHECK(fired[name] > 0);
  }
  if (modes.size() == 9) CHECK(fired["open O_DIRECT"] > 0);
  CHECK(out_of_memory > 0);  // a stage that runs ahead of the last batch may fail without effect
  CHECK(errors > 5);
}
