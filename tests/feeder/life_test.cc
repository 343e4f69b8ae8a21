// Starting, stopping, holding batches and waiting: nothing may hang, leak or grow.
#include <algorithm>
#include <atomic>
#include <cfenv>
#include <deque>
#include <random>
#include <thread>

#include "data.h"
#include "support/catch.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/skip.h"

using namespace feedline;
using namespace feedline::test;
using namespace std::chrono_literals;

namespace {

Category category_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.category();
  }
  FAIL("no error");
  return {};
}

/// Returns the smallest memory.limit into which the plan of a pipeline fits, as the plan's own error message advises.
std::string least_memory(const Pipeline& pipeline, const Options& options) {
  try {
    Feeder feeder(pipeline.with("memory.limit", "1"), options);
  } catch (const Error& error) {
    const std::string text = error.message(), from = "at least \"";
    const size_t begin = text.find(from) + from.size();
    return text.substr(begin, text.find('"', begin) - begin);
  }
  return "";
}

}  // namespace

TEST_CASE("next_into() takes nothing that it cannot fill") {
  const Data data({25});
  Feeder feeder(data.pipeline("batch { global_batch_size: 10 last_batch_policy: PARTIAL }"), replicas(1));
  std::vector<int64_t> ids(10);
  const std::vector<NamedTensor> to = {{"id", {ids.data(), DType::int64, {10}}}};
  const std::vector<NamedTensor> wrong = {{"id", {ids.data(), DType::float64, {10}}}};
  for (uint64_t step = 0; step < 2; step++) {
    for (int again = 0; again < 2; again++)
      CHECK_THROWS_WITH(feeder.next_into(0, wrong, Stream::host), Catch::Contains("INT64 [10] in the batch"));
    CHECK(feeder.get_state() == feeder.get_state(0, static_cast<int64_t>(step)));
    REQUIRE(feeder.next_into(0, to, Stream::host));
    CHECK(ids[0] == static_cast<int64_t>(10 * step));
  }
  CHECK_THROWS_WITH(feeder.next_into(0, to, Stream::host), Catch::Contains("INT64 [5] in the batch"));
  const Batch last = feeder.next();  // the short one
  CHECK((last.step() == 2 && last.rows() == 5));
  CHECK_FALSE(feeder.next_into(0, to, Stream::host));
}

// What a thread leaves in the graph when it gives a batch back may outlive the thread. ThreadSanitizer sees whether
// anybody uses what ended with it.
TEST_CASE("threads that take batches may end before the feed") {
  const Data data({4000, 300, 5000});
  for (int times = 0; times < 3; times++) {
    Feeder feeder(data.pipeline("batch { global_batch_size: 6 } parallelism { threads: 4 host_prefetch: 1 }"),
                  replicas(3));
    for (uint64_t step = 0; step < 400; step++) {
      const auto thrown = side_by_side(3, [&](int replica) {
        if (feeder.next(replica).step() != step) throw std::runtime_error("a different step");
      });
      CHECK(thrown == std::vector<std::string>(3));
    }
  }
}

TEST_CASE("a feeder may end at any moment and leaks nothing") {
  const Data plain({4000, 300, 5000});
  const Data packed({4000, 300, 5000}, Compression::gzip);
  std::mt19937 random(7);
  const auto cycle = [&](int i) {
    const Data& data = i % 2 == 0 ? plain : packed;
    Options options = replicas(1 + i % 3);
    options.io.backend = i % 5 == 0 ? BackendKind::pread : BackendKind::automatic;
    std::vector<Batch> held;
    Feeder feeder(data.pipeline("batch { global_batch_size: 60 } parallelism { host_prefetch: 4 }"), options);
    try {
      for (auto steps = random() % 40; steps > 0; steps--)
        for (int r = 0; r < feeder.replicas(); r++) {
          Batch batch;
          feeder.next(r, std::chrono::microseconds(random() % 200), batch);
          if (batch && held.size() < 2) held.push_back(std::move(batch));
        }
    } catch (const Error& error) {
      CHECK(error.category() == Category::stalled);  // the time-out of one replica let another run ahead
    }
    if (random() % 2) feeder.stop();
  };
  cycle(0);
  cycle(1);
  const size_t files = open_descriptors(), tasks = threads();
  const int64_t memory = private_memory();
  for (int i = 0; i < 300; i++) cycle(i);
  CHECK(private_memory() < memory + (256 << 20));  // the slots alone take several MiB in each feeder
  CHECK(open_descriptors() == files);
  CHECK(threads() <= tasks + 1);  // counting may start a worker thread of oneTBB after the first cycles
}

TEST_CASE("stop wakes every next, from any thread") {
  const Data data({100});
  for (int i = 0; i < 50; i++) {
    Feeder feeder(data.pipeline("batch { global_batch_size: 10 }"), replicas(2));
    std::atomic<int> stalled{0};
    const auto serve = [&] {  // replica 1 is never served, so replica 0 soon waits for it
      try {
        while (true) feeder.next(0);
      } catch (const Error& error) {
        if (error.category() == Category::stalled) stalled++;
      }
    };
    std::thread server(serve);
    if (i % 2) std::this_thread::sleep_for(1ms * (i % 5));  // stops at different moments; any is right
    feeder.stop();
    server.join();
    CHECK(stalled == 1);
    CHECK(category_of([&] { feeder.next(1); }) == Category::stalled);
  }
}

TEST_CASE("in a fork a feeder says that it has no threads there, and ends at once") {
  const Data data({1000});
  auto feeder =
      std::make_unique<Feeder>(data.pipeline("batch { global_batch_size: 10 } parallelism { host_prefetch: 2 }"));
  const std::string state = feeder->get_state();
  std::vector<Batch> held;
  for (int i = 0; i < 3; i++) held.push_back(feeder->next());
  CHECK(category_of([&] { feeder->next(); }) == Category::stalled);  // the feeder rests until a batch comes back
  CHECK(in_child([&] {
          alarm(60);
          int wrong = 0;
          Batch batch;
          for (const std::function<void()>& call : std::vector<std::function<void()>>{
                   [&] { feeder->next(); },
                   [&] { feeder->try_next(0, batch); },
                   [&] { feeder->next_into(0, {}, Stream::host); },
                   [&] { feeder->get_state(); },
                   [&] { feeder->get_state(3); },
                   [&] { feeder->set_state(state); },
                   [&] { feeder->set_epoch(1); },
                   [&] { feeder->set_weights({1}); },
                   [&] { feeder->epoch(); },
                   [&] { feeder->plan_text(); },
                   [&] { feeder->report(); },
               }) {
            wrong++;
            try {
              call();
              return wrong;
            } catch (const Error& error) {
              if (error.message().find("make a new feeder in this process") == std::string::npos) return wrong;
            }
          }
          if (feeder->steps_per_epoch() != 100 || feeder->samples_per_epoch() != 1000 || feeder->replicas() != 1)
            return 50;
          feeder->stop();
          feeder.reset();
          return 0;
        }) == 0);
  held.clear();
  CHECK(feeder->next().at("id").as<int64_t>()[0] == 30);  // the fork has not disturbed the parent's feeder
}

TEST_CASE("batches outlive the feeder") {
  const Data data({1000});
  std::vector<Batch> held;
  {
    Feeder feeder(data.pipeline("batch { global_batch_size: 10 } parallelism { host_prefetch: 3 }"));
    for (int i = 0; i < 3; i++) held.push_back(feeder.next());
  }
  for (size_t i = 0; i < 3; i++) {
    REQUIRE(held[i]);
    CHECK(held[i].at("id").as<int64_t>()[9] == static_cast<int64_t>(i * 10 + 9));
  }
}

TEST_CASE("a caller that holds every batch is told at once, and may go on") {
  const Data data({1000});
  Feeder feeder(data.pipeline("batch { global_batch_size: 10 } parallelism { host_prefetch: 2 }"));
  std::vector<Batch> held;
  for (int i = 0; i < 3; i++) held.push_back(feeder.next());
  CHECK(category_of([&] { feeder.next(); }) == Category::stalled);
  CHECK(category_of([&] { feeder.next(); }) == Category::stalled);
  held.erase(held.begin());
  CHECK(feeder.next().at("id").as<int64_t>()[0] == 30);
}

TEST_CASE("a caller may hold all but one of many small batches and is still fed") {
  const Data data({1000});
  Feeder feeder(data.pipeline("batch { global_batch_size: 2 } epoch { repeat: -1 }"));
  std::deque<Batch> held;
  REQUIRE(category_of([&] {
            for (;;) held.push_back(feeder.next());
          }) == Category::stalled);
  CHECK(held.size() == 32);
  while (!held.empty()) {
    held.pop_front();
    // Buffers come back one at a time: fewer than a ring waits for while batches are ready.
    for (int i = 0; i < 70; i++) {
      held.push_back(feeder.next());
      REQUIRE(held.back());
      held.pop_front();
    }
  }
}

TEST_CASE("a replica is fed on though another's ring waits for more buffers than have come back") {
  // With the fewest slots possible, a step for which one replica has no buffer holds the slots that the next step
  // needs.
  const Data data({20'000, 20'000});
  Options options = replicas(2);
  options.threads = 1;
  Pipeline pipeline = data.pipeline(
      "batch { global_batch_size: 500 } epoch { repeat: -1 } shuffle { mode: GLOBAL } parallelism { host_prefetch: 20 "
      "}");
  pipeline = pipeline.with("memory.limit", least_memory(pipeline, options));
  Feeder feeder(pipeline, options);
  const auto ready = [&](const std::string& stage) {
    const std::vector<StageReport> stages = feeder.report().stages;
    return std::ranges::find(stages, stage, &StageReport::name)->queue;
  };
  while (ready("unpack 0") < 21 || ready("unpack 1") < 21) std::this_thread::yield();
  for (int i = 0; i < 9; i++) REQUIRE(feeder.next(0));
  for (int i = 0; i < 29; i++) REQUIRE(feeder.next(1));
}

TEST_CASE("small batches are as many as the memory limit allows, or as many as the pipeline says") {
  const Data data({1000});
  const auto most_held = [&](const std::string& path, const std::string& value) {
    const Pipeline pipeline = data.pipeline("batch { global_batch_size: 2 } epoch { repeat: -1 }");
    Feeder feeder(pipeline.with(path, value == "least" ? least_memory(pipeline, {}) : value));
    std::vector<Batch> held;
    CHECK(category_of([&] {
            for (;;) held.push_back(feeder.next());
          }) == Category::stalled);
    return held.size();
  };
  CHECK(most_held("memory.limit", "") == 32);
  CHECK(most_held("parallelism.host_prefetch", "2") == 3);
  const size_t least = most_held("memory.limit", "least");
  CHECK(least >= 3);
  CHECK(least <= 32);
}

TEST_CASE("a thread that serves two replicas out of turn is told at once") {
  const Data data({1000});
  Feeder feeder(data.pipeline("batch { global_batch_size: 10 } parallelism { host_prefetch: 2 }"), replicas(2));
  feeder.next(1);
  for (int i = 0; i < 3; i++) feeder.next(0);
  CHECK(category_of([&] { feeder.next(0); }) == Category::stalled);
  CHECK(feeder.next(1).at("id").as<int64_t>()[0] == 15);
  CHECK(feeder.next(0));
}

TEST_CASE("replicas run at most host_prefetch steps apart") {
  const Data data({1000});
  Feeder feeder(data.pipeline("batch { global_batch_size: 10 } parallelism { host_prefetch: 2 }"), replicas(2));
  Batch batch;
  for (int i = 0; i < 2; i++) CHECK(feeder.next(0));
  CHECK(feeder.try_next(0, batch) == Next::not_ready);  // replica 1 has not been served yet
  std::thread other([&] { feeder.next(1); });
  CHECK(feeder.next(0));
  other.join();
}

TEST_CASE("threads that serve replicas at different speeds get the same batches") {
  const Data data({6000, 2000});
  Feeder feeder(data.pipeline("batch { global_batch_size: 40 }"), replicas(4));
  std::vector<Epoch> epochs(4);
  std::vector<std::thread> servers;
  for (int r = 0; r < 4; r++)
    servers.emplace_back([&, r] {
      std::mt19937 random(static_cast<unsigned>(r));
      while (auto batch = feeder.next(r)) {
        add_batch(epochs[static_cast<size_t>(r)], batch);
        if (random() % 8 == 0) std::this_thread::yield();
      }
    });
  for (auto& server : servers) server.join();
  for (int r = 0; r < 4; r++)
    for (int64_t step = 0; step < 200; step++)
      CHECK(epochs[static_cast<size_t>(r)].ids[static_cast<size_t>(step)] == numbers(10, step * 40 + r * 10));
}

TEST_CASE("nothing grows while nobody takes") {
  const Data data({20000, 20000});
  const auto open = [&] {
    return std::make_unique<Feeder>(
        data.pipeline("feature { name: 'x' dtype: FLOAT32 shape: 3 } feature { name: 'v' dtype: INT64 kind: VARIABLE }"
                      "batch { global_batch_size: 256 } epoch { repeat: -1 }"),
        replicas(2));
  };
  // `one_stops`: replica 1 is never served, and replica 0 gets host_prefetch steps and no further.
  const auto one_stops = open(), speeds = open(), all_held = open();
  for (int i = 0; i < 2; i++) CHECK(one_stops->next(0));

  // `speeds`: the replicas run at different speeds, and the slow one stops after 300 steps.
  std::atomic<uint64_t> taken[2] = {};
  std::vector<std::thread> servers;
  for (size_t r = 0; r < 2; r++)
    servers.emplace_back([&, r] {
      try {
        while (r == 0 || taken[r] < 300) {
          if (speeds->next(static_cast<int>(r))) taken[r]++;
          if (r == 1) std::this_thread::yield();
        }
      } catch (const Error& error) {
        if (error.category() == Category::stalled) taken[r] += 1'000'000;  // the end of the test
      }
    });

  // `all_held`: the caller holds every batch.
  std::vector<Batch> held;
  CHECK(category_of([&] {
          while (true)
            for (int r = 0; r < 2; r++) held.push_back(all_held->next(r));
        }) == Category::stalled);
  CHECK(held.size() == 6);

  while (taken[0] < 302 || taken[1] < 300) std::this_thread::yield();
  std::this_thread::sleep_for(1s);
  const int64_t after_1_s = private_memory();
  std::this_thread::sleep_for(9s);
  const int64_t after_10_s = private_memory();
  INFO(after_1_s << " then " << after_10_s);
  CHECK(std::abs(after_10_s - after_1_s) <= 1 << 20);

  Batch batch;
  CHECK(one_stops->try_next(0, batch) == Next::not_ready);
  CHECK(taken[0] == 302);  // replica 0 is host_prefetch steps ahead and waits
  CHECK(speeds->report().waited_for == "another replica");
  CHECK(category_of([&] { all_held->next(0); }) == Category::stalled);
  speeds->stop();
  for (std::thread& server : servers) server.join();
  CHECK(taken[0] == 1'000'302);
}

TEST_CASE("memory stays within the plan over ten epochs") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // defined by g++, with which the sanitizers run
  return skip("sanitizers take memory of their own for what a program allocates and reads");
#endif
  const int64_t idle = private_memory();
  const Data data({20000, 20000});
  Feeder feeder(
      data.pipeline("feature { name: 'x' dtype: FLOAT32 shape: 3 } feature { name: 'v' dtype: INT64 kind: VARIABLE }"
                    "memory { limit: '64MiB' } batch { global_batch_size: 256 }"));
  for (int epoch = 0; epoch < 10; epoch++)
    while (feeder.next()) {
    }
  CHECK(private_memory() - idle <= 64 << 20);
}

TEST_CASE("the host's floating-point settings change nothing") {
  const Data data({300});
  const std::string text =
      "output { name: 'y' expression { formula: 'id / 3 * 1e-310' } } batch { global_batch_size: 100 }";
  const auto read = [&] {
    std::vector<double> all;
    Feeder feeder(data.pipeline(text));
    while (auto batch = feeder.next()) {
      const auto y = batch.at("y").as<double>();
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  };
  const auto wanted = read();
  std::fesetround(FE_UPWARD);
#if defined(__SSE__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);  // flush to zero, and denormals are zero
#endif
  const auto got = read();
  std::fesetenv(FE_DFL_ENV);
  CHECK(std::memcmp(wanted.data(), got.data(), wanted.size() * sizeof(double)) == 0);
  CHECK(wanted[1] > 0);
}
