// Ranks that are threads.
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "gpu/communicator_conformance.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

namespace {

// Runs `body` on each rank, in a thread of its own; what it throws is thrown here.
void on_ranks(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& body) {
  std::mutex mutex;
  std::exception_ptr failed;
  std::vector<std::thread> threads;
  for (auto& end : communicators_between_threads(ranks))
    threads.emplace_back([&, mine = std::move(end)]() mutable {
      try {
        body(std::move(mine));
      } catch (...) {
        const std::lock_guard lock(mutex);
        failed = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace

TEST_CASE("threads: a communicator does what all do") {
  const int ranks = GENERATE(1, 2, 3, 4, 8);
  on_ranks(ranks, [](std::unique_ptr<Communicator> c) { conformance(*c); });
  SUCCEED();
}

TEST_CASE("threads: what is wrong on one rank ends all of them, and says where") {
  on_ranks(4, [](std::unique_ptr<Communicator> c) { calls_differently(*c); });
  on_ranks(4, [](std::unique_ptr<Communicator> c) { sends_what_nobody_wants(*c); });
  on_ranks(4, [](std::unique_ptr<Communicator> c) { aborts(*c); });
  on_ranks(4, leaves);
  SUCCEED();
}

TEST_CASE("threads: a rank that leaves in peace takes nothing from a call that it has finished") {
  for (int round = 0; round < 200; round++) on_ranks(3, [](std::unique_ptr<Communicator> c) { broadcasts(*c); });
  SUCCEED();
}
