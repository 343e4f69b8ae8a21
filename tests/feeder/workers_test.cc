// Which worker threads are woken, and that no wake is lost.
#include "flowgraph/feed/workers.h"

#include <condition_variable>
#include <future>
#include <mutex>
#include <set>

#include "flowgraph/chunk/pool.h"
#include "support/catch.h"

using namespace feedline;

namespace {

/// The work of the workers: it does nothing but note the thread on which it ran.
class Runs {
 public:
  void run() {
    const std::lock_guard lock(mutex_);
    count_++;
    threads_.insert(std::this_thread::get_id());
    changed_.notify_all();
  }
  void wait_for_runs(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }
  void wait_for_threads(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return threads_.size() >= count; });
  }
  size_t threads() {
    const std::lock_guard lock(mutex_);
    return threads_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
  std::set<std::thread::id> threads_;
};

}  // namespace

TEST_CASE("a wake is one thread's, wake_all() is everybody's") {
  Runs runs;
  flow::Workers workers(3, [&] { runs.run(); });
  for (int times = 1; times <= 100; times++) {
    workers.wake();
    runs.wait_for_runs(times);
  }
  CHECK(runs.threads() == 1);
  workers.wake_all();
  runs.wait_for_threads(3);
}

TEST_CASE("a wake that comes while the thread runs is not forgotten") {
  std::promise<void> begun, gate;
  Runs runs;
  bool first = true;
  flow::Workers workers(1, [&] {
    runs.run();
    if (!std::exchange(first, false)) return;
    begun.set_value();
    gate.get_future().wait();
  });
  workers.wake();
  begun.get_future().wait();
  workers.wake();
  gate.set_value();
  runs.wait_for_runs(2);
}

TEST_CASE("queued work runs before the threads end") {
  for (int times = 0; times < 50; times++) {
    std::atomic<bool> work{false}, done{false};
    {
      flow::Workers workers(2, [&] {
        if (work.exchange(false)) done = true;
      });
      work = true;
    }
    CHECK(done);
  }
}

TEST_CASE("a pool wakes the reader once enough slots are free, or one if one is enough") {
  int kicks = 0;
  flow::Pool<int> pool({1, 2, 3, 4});
  pool.on_return([&] { kicks++; });
  pool.set_enough(3);
  for (int i = 0; i < 4; i++) REQUIRE(pool.take());
  pool.give_back(1);  // no taker has found the pool empty
  REQUIRE(pool.take());
  CHECK_FALSE(pool.take());
  pool.give_back(1);
  pool.give_back(2);
  CHECK(kicks == 0);
  CHECK_FALSE(pool.dry());
  pool.give_back(3);
  CHECK(kicks == 1);
  for (int i = 0; i < 3; i++) REQUIRE(pool.take());
  CHECK_FALSE(pool.take());
  pool.set_enough(1);
  CHECK(kicks == 1);
  pool.give_back(1);
  CHECK(kicks == 2);
  REQUIRE(pool.take());
  CHECK_FALSE(pool.take());
  pool.set_enough(3);
  pool.give_back(1);
  CHECK(kicks == 2);
  pool.set_enough(1);  // the buffer is already there
  CHECK(kicks == 3);
}
