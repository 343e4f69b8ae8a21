// The CPUs on which a feeder's threads run.
#include <oneapi/tbb/parallel_for.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <system_error>

#include "base/worker_arena.h"
#include "data.h"
#include "support/catch.h"
#include "support/process.h"

using namespace feedline;
using namespace feedline::test;

namespace {

/// Returns the CPUs that the calling thread may use. Several threads call it at the same time, so it uses no macro of
/// Catch2.
std::vector<int> allowed_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) throw std::system_error(errno, std::generic_category());
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

/// Returns the CPUs that the calling thread may use, without the last one if there are several.
std::vector<int> some_cpus() {
  auto cpus = allowed_cpus();
  if (cpus.size() > 1) cpus.pop_back();
  return cpus;
}

}  // namespace

TEST_CASE("with a cpu_set every thread of the feeder keeps to it, and no other") {
  const Data data({3000, 3000});
  const auto before = allowed_cpus(), wanted = some_cpus();
  std::string text;
  for (int cpu : wanted) text += (text.empty() ? "" : ",") + std::to_string(cpu);
  const auto list_of_main = [] { return thread_statuses().front().cpus; };  // the first entry is the main thread
  const std::string main_list = list_of_main();
  for (const BackendKind backend : {BackendKind::automatic, BackendKind::pread}) {
    std::mutex mutex;
    std::set<std::vector<int>> counted_on;
    std::set<std::string> main_meanwhile;
    Options options;
    options.io.backend = backend;
    options.on_progress = [&](uint64_t, uint64_t) {
      const std::lock_guard lock(mutex);
      counted_on.insert(allowed_cpus());
      main_meanwhile.insert(list_of_main());
    };
    Feeder feeder(data.pipeline("batch { global_batch_size: 50 } parallelism { cpu_set: '" + text + "' }"),
                  std::move(options));
    CHECK(counted_on == std::set{wanted});
    CHECK(main_meanwhile == std::set{main_list});
    CHECK(feeder.next());
    size_t own = 0;
    std::string list;
    std::thread([&] {  // reads how the kernel writes this set
      cpu_set_t set;
      CPU_ZERO(&set);
      for (int cpu : wanted) CPU_SET(cpu, &set);
      sched_setaffinity(0, sizeof set, &set);
      std::ifstream status("/proc/thread-self/status");
      while (std::getline(status, list) && list.rfind("Cpus_allowed_list:", 0) != 0) {
      }
      list = list.substr(list.find('\t') + 1);
    })
        .join();
    for (const ThreadStatus& thread : thread_statuses()) {
      if (thread.name.rfind("feedline", 0) != 0) continue;
      own++;
      INFO(thread.name);
      CHECK(thread.cpus == list);
    }
    CHECK(own >= 2);  // one thread that drives the graph, and those that read
    CHECK(allowed_cpus() == before);
  }
  CHECK(allowed_cpus() == before);
}

TEST_CASE("workers leave an arena for the CPUs that they came from") {
  const std::string everywhere = thread_statuses().front().cpus;
  const auto before = allowed_cpus();
  const std::vector<int> one = {before.front()};
  for (int i = 0; i < 20; i++) {
    std::mutex mutex;
    std::set<std::vector<int>> ran_on;
    {
      WorkerArena arena(2, one);
      arena.execute([&] {
        tbb::parallel_for(0, 20, [&](int) {
          const auto cpus = allowed_cpus();
          const std::lock_guard lock(mutex);
          ran_on.insert(cpus);
          usleep(100);  // gives a worker thread the time to join
        });
      });
    }
    CHECK(ran_on == std::set{one});
    for (const ThreadStatus& thread : thread_statuses()) CHECK(thread.cpus == everywhere);
    CHECK(allowed_cpus() == before);
  }
}
