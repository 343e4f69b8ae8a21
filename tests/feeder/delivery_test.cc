// What next() returns and when it does so. The test takes the place of the graph.
#include "flowgraph/feed/delivery.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <set>
#include <string>
#include <thread>

#include "data.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/plan/plan.h"
#include "gpu/device/stream_order.h"
#include "support/catch.h"
#include "support/skip.h"

using namespace feedline;
using namespace feedline::test;
using flow::Delivery;
using flow::Stage;
using Outcome = Delivery::Outcome;

namespace {

/// A delivery whose batches have no content.
struct Rig {
  explicit Rig(int replicas = 1, Stage busy = Stage::read) {
    for (int r = 0; r < replicas; r++) rings.push_back(std::make_shared<flow::BatchRing>(plan, r));
    delivery.emplace(rings, 2, flow::Position{}, flow::EpochLedger(rings.size(), {}, true),
                     [busy](int) { return busy; });
  }

  /// Delivers a batch as the graph's unpack node does. Returns false if no buffer is free.
  bool unpack(int replica) {
    const auto ring = rings[static_cast<size_t>(replica)];
    const auto buffer = ring->pool().take();
    if (buffer) delivery->put(replica, {.batch = ring->share(*buffer), .error = {}, .keeps = {}});
    return buffer.has_value();
  }
  Outcome try_next(int replica, Batch& batch) {
    return delivery->next(replica, std::chrono::steady_clock::now(), batch);
  }
  /// Takes all buffers of replica 0, so that the caller holds every one.
  std::vector<Batch> all_buffers() {
    std::vector<Batch> held;
    for (size_t i = 0; i < rings[0]->pool().size(); i++) {
      REQUIRE(unpack(0));
      held.emplace_back();
      REQUIRE(try_next(0, held.back()) == Outcome::batch);
    }
    return held;
  }

  Data data{{10}};
  flow::PipelineSpec spec = flow::validate(data.pipeline("batch { global_batch_size: 2 }"));
  flow::Plan plan{spec, flow::count_data(spec, 1, {}), {}, 1};
  std::vector<std::shared_ptr<flow::BatchRing>> rings;
  std::optional<Delivery> delivery;
};

std::string category_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(name(error.category()));
  }
  return "none";
}

}  // namespace

TEST_CASE("batches that are delivered together keep their order, after those already there") {
  Rig rig;
  REQUIRE(rig.unpack(0));
  const auto buffer = rig.rings[0]->pool().take();
  REQUIRE(buffer);
  std::vector<flow::Ready> ready(2);
  ready[0].batch = rig.rings[0]->share(*buffer);
  rig.delivery->put_all(0, ready);
  Batch batch;
  for (const Outcome expected : {Outcome::batch, Outcome::batch, Outcome::end_of_epoch, Outcome::not_ready})
    CHECK(rig.try_next(0, batch) == expected);
}

TEST_CASE("a caller that holds every batch still gets what needs no buffer") {
  Rig rig;
  const auto held = rig.all_buffers();
  Batch batch;
  CHECK(rig.try_next(0, batch) == Outcome::not_ready);  // it is not known yet what comes next
  rig.delivery->put(0, {});
  CHECK(rig.try_next(0, batch) == Outcome::end_of_epoch);
  CHECK(rig.try_next(0, batch) == Outcome::not_ready);
  const Error bad(Category::bad_data_crc, "found later");
  rig.delivery->put(0, {.batch = {}, .error = std::make_shared<const Error>(bad), .keeps = {}});
  CHECK(category_of([&] { rig.try_next(0, batch); }) == "bad_data_crc");
}

TEST_CASE("a caller that holds every batch is told as soon as one is wanted, whoever comes first") {
  for (int i = 0; i < 200; i++) {
    Rig rig;
    auto held = rig.all_buffers();
    std::promise<void> begun;
    auto told = std::async(std::launch::async, [&] {
      begun.set_value();
      Batch batch;
      return category_of([&] { rig.delivery->next(0, std::nullopt, batch); });
    });
    if (i % 2) begun.get_future().wait();
    CHECK_FALSE(rig.unpack(0));
    rig.delivery->out_of_buffers(0);
    CHECK(told.get() == "stalled");
    held.pop_back();
    CHECK(rig.unpack(0));
    Batch batch;
    CHECK(rig.try_next(0, batch) == Outcome::batch);
  }
}

TEST_CASE("a replica that waits for a slower one is woken by its step") {
  Rig rig(2);
  Batch batch;
  for (int i = 0; i < 3; i++) rig.delivery->put(0, {});
  rig.delivery->put(1, {});
  for (int i = 0; i < 2; i++) CHECK(rig.try_next(0, batch) == Outcome::end_of_epoch);
  CHECK(rig.try_next(0, batch) == Outcome::not_ready);
  auto third = std::async(std::launch::async, [&] {
    Batch own;
    return rig.delivery->next(0, std::nullopt, own);
  });
  CHECK(rig.try_next(1, batch) == Outcome::end_of_epoch);
  CHECK(third.get() == Outcome::end_of_epoch);
}

TEST_CASE("waiting is attributed to the stage that has the work") {
  for (const Stage stage : {Stage::read, Stage::inflate, Stage::parse, Stage::unpack, Stage::replica}) {
    Rig rig(1, stage);
    Batch batch;
    CHECK(rig.delivery->next(0, std::chrono::steady_clock::now() + std::chrono::milliseconds(2), batch) ==
          Outcome::not_ready);
    const auto report = rig.delivery->report();
    for (size_t s = 0; s < flow::stage_count; s++) CHECK((report.waited_s[s] > 0) == (s == static_cast<size_t>(stage)));
  }
}

TEST_CASE("calls that wait for the same batch are one wait") {
  Rig rig;
  Batch batch;
  REQUIRE(rig.unpack(0));
  REQUIRE(rig.try_next(0, batch) == Outcome::batch);  // the first batch does not count
  const std::chrono::milliseconds each(2);
  for (int calls = 0; calls < 5; calls++)
    CHECK(rig.delivery->next(0, std::chrono::steady_clock::now() + each, batch) == Outcome::not_ready);
  REQUIRE(rig.unpack(0));
  REQUIRE(rig.try_next(0, batch) == Outcome::batch);
  REQUIRE(rig.unpack(0));
  REQUIRE(rig.try_next(0, batch) == Outcome::batch);
  const auto report = rig.delivery->report();
  CHECK(report.next_calls == 2);
  CHECK(report.next_ready == 1);
  CHECK(report.next.max_us() >= 5 * 2000);
}

TEST_CASE("a wait that goes on is told of, too") {
  Rig rig(1, Stage::parse);
  auto waits = std::async(std::launch::async, [&] {
    Batch batch;
    return rig.delivery->next(0, std::nullopt, batch);
  });
  const auto waited = [&] { return rig.delivery->report().waited_s[static_cast<size_t>(Stage::parse)]; };
  while (waited() == 0) std::this_thread::yield();  // would never end if the wait counted only once it is over
  rig.delivery->put(0, {});
  CHECK(waits.get() == Outcome::end_of_epoch);
  CHECK(waited() > 0);
}

TEST_CASE("waiting for the first batch is the start's, and no lost time") {
  Rig rig(2, Stage::parse);
  const auto waited = [&] { return rig.delivery->report().waited_s[static_cast<size_t>(Stage::parse)]; };
  auto other = std::async(std::launch::async, [&] {
    Batch batch;
    return rig.delivery->next(1, std::nullopt, batch);
  });
  while (waited() < 0.02) std::this_thread::yield();
  Batch batch;
  REQUIRE(rig.unpack(0));
  REQUIRE(rig.try_next(0, batch) == Outcome::batch);
  {  // the other replica is still waiting
    const auto report = rig.delivery->report();
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - report.first_batch.value();
    CHECK(report.waited_s[static_cast<size_t>(Stage::parse)] <= since.count());
  }
  while (waited() == 0) std::this_thread::yield();
  rig.delivery->put(1, {});
  CHECK(other.get() == Outcome::end_of_epoch);
  const double before = waited();
  CHECK(rig.delivery->next(0, std::chrono::steady_clock::now() + std::chrono::milliseconds(2), batch) ==
        Outcome::not_ready);
  CHECK(waited() > before);
}

TEST_CASE("a replica is short while nothing is ready for it, and says when it falls short") {
  Rig rig(2);
  std::vector<int> told;
  rig.delivery->on_shortage([&](int replica) { told.push_back(replica); });
  CHECK(rig.delivery->shortage());
  REQUIRE(rig.unpack(0));
  REQUIRE(rig.unpack(0));
  CHECK(rig.delivery->shortage());  // the other replica is short
  REQUIRE(rig.unpack(1));
  CHECK_FALSE(rig.delivery->shortage());
  Batch batch;
  REQUIRE(rig.try_next(0, batch) == Outcome::batch);
  CHECK_FALSE(rig.delivery->shortage());
  CHECK(told.empty());
  REQUIRE(rig.try_next(0, batch) == Outcome::batch);
  CHECK(rig.delivery->shortage());
  CHECK(told == std::vector<int>{0});
  CHECK(rig.try_next(0, batch) == Outcome::not_ready);
  CHECK(told.size() == 1);
  REQUIRE(rig.unpack(0));
  CHECK_FALSE(rig.delivery->shortage());
}

TEST_CASE("a batch that could not arrive comes again") {
  Rig rig;
  for (int i = 0; i < 2; i++) REQUIRE(rig.unpack(0));
  Batch batch;
  const auto next = [&](const Delivery::Arrive& arrive) {
    return rig.delivery->next(0, std::chrono::steady_clock::now(), batch, nullptr, arrive);
  };
  const void* refused = nullptr;
  for (int i = 0; i < 10; i++) {
    CHECK_THROWS_AS(next([&](Batch& come) {
                      refused = come.at("id").data;
                      throw Error(Category::bad_pipeline, "not on this stream");
                    }),
                    Error);
    CHECK_FALSE(batch);
    CHECK(rig.rings[0]->held == 0);
    CHECK(rig.delivery->report().counters.steps == 0);
  }
  CHECK(next([&](Batch& come) { CHECK(come.at("id").data == refused); }) == Outcome::batch);
  CHECK(rig.delivery->report().counters.steps == 1);
  CHECK(next({}) == Outcome::batch);
  CHECK(next({}) == Outcome::not_ready);
}

/// The order of a buffer on a device. Counts how often the buffer is let go.
class CountingOrder final : public gpu::StreamOrder {
 public:
  void ready_on(Stream) override {}
  void copy_on(Stream, void*, const void*, size_t) override {}
  std::shared_ptr<gpu::OwnMemory> copy(std::span<const gpu::CopyWithin>, size_t) override { return nullptr; }
  void release_on(Stream) noexcept override {}
  void let_go() noexcept override { times++; }

  int times = 0;
};

TEST_CASE("a batch that could not arrive is on nobody's stream while it waits to come again") {
  CountingOrder order;
  Rig rig;
  const auto buffer = rig.rings[0]->pool().take();
  REQUIRE(buffer);
  (*buffer)->content.order = &order;
  rig.delivery->put(0, {.batch = rig.rings[0]->share(*buffer), .error = {}, .keeps = {}});
  Batch batch;
  CHECK_THROWS_AS(rig.delivery->next(0, std::chrono::steady_clock::now(), batch, nullptr,
                                     [](Batch&) { throw Error(Category::io_error, "another rank has left"); }),
                  Error);
  CHECK(order.times == 1);
  CHECK(rig.try_next(0, batch) == Outcome::batch);
  CHECK(order.times == 1);
  batch = Batch();
  CHECK(order.times == 2);
}

TEST_CASE("other ranks are asked about at each step, though batches are ready") {
  Rig rig(2);
  std::optional<Error> failure;
  rig.delivery->watch([&] { return failure; });
  for (int i = 0; i < 2; i++) REQUIRE(rig.unpack(0));
  Batch batch;
  CHECK(rig.try_next(0, batch) == Outcome::batch);
  failure = Error(Category::io_error, "rank 2 is gone");
  CHECK_THROWS_WITH(rig.try_next(0, batch), "step 1 of epoch 0: rank 2 is gone [io_error]");
  CHECK_FALSE(rig.delivery->failed());  // no error of this rank's own
  failure.reset();
  CHECK(rig.try_next(0, batch) == Outcome::batch);
}

TEST_CASE("an error of this rank comes after the batches before it, even if other ranks have failed by then") {
  Rig rig(2);
  bool told = false;
  rig.delivery->watch([&] { return told ? std::optional(Error(Category::io_error, "told")) : std::nullopt; });
  const Error bad(Category::bad_data_crc, "own");
  for (const int replica : {0, 1}) {
    if (replica == 1) REQUIRE(rig.unpack(1));
    rig.delivery->put(replica, {.batch = {}, .error = std::make_shared<const Error>(bad), .keeps = {}});
  }
  Batch batch;
  CHECK(category_of([&] { rig.try_next(0, batch); }) == "bad_data_crc");
  told = true;  // Feeder::next() tells the other ranks of the error at this point
  CHECK(category_of([&] { rig.try_next(0, batch); }) == "bad_data_crc");
  CHECK(rig.try_next(1, batch) == Outcome::batch);
  CHECK(category_of([&] { rig.try_next(1, batch); }) == "bad_data_crc");
}

/// A file that no one can open until release(): an attempt to open it blocks, as on a disk that does not answer.
class Withheld {
 public:
  explicit Withheld(const std::string& file) : fd_(open(file.c_str(), O_RDWR | O_CLOEXEC)) {
    fcntl(fd_, F_SETSIG, SIGURG);  // the signal of an attempt to open the file; it is ignored
  }
  ~Withheld() { close(fd_); }
  /// Returns false if the file is open elsewhere or the file system has no leases.
  bool withhold() { return fcntl(fd_, F_SETLEASE, F_WRLCK) == 0; }
  /// Returns whether somebody waits to open the file.
  bool is_wanted() { return fcntl(fd_, F_GETLEASE) != F_WRLCK; }
  void release() { fcntl(fd_, F_SETLEASE, F_UNLCK); }

 private:
  const int fd_;
};

TEST_CASE("a disk that is waited for is named, whatever the compression") {
  for (const Compression compression : {Compression::none, Compression::gzip}) {
    const Data data({100, 100}, compression);
    Withheld first(data.path(0));
    bool withheld = false;
    Options options;
    options.threads = 1;
    options.on_progress = [&](uint64_t, uint64_t) { withheld = withheld || first.withhold(); };
    Feeder feeder(data.pipeline("batch { global_batch_size: 10 }"), std::move(options));
    if (!withheld) return skip("the file system has no leases");
    Batch batch;
    while (!first.is_wanted()) std::this_thread::yield();
    // If the only thread opens the file, it cannot parse what it has; otherwise it soon has nothing left to parse, and the
    // time of all waits is more and more that of the disk.
    do REQUIRE(feeder.next(0, std::chrono::milliseconds(20), batch) == Next::not_ready);
    while (feeder.report().waited_for != "read");
    first.release();
    CHECK(feeder.next().at("id").as<int64_t>()[9] == 9);
    CHECK(feeder.report().next_wait_s == 0);
    CHECK(feeder.report().waited_s.empty());
  }
}

TEST_CASE("what a feeder says of its outputs before the first batch is in every batch") {
  const Data data({30});
  Feeder feeder(data.pipeline(
      "feature { name: 'x' dtype: FLOAT32 shape: [3] } feature { name: 'b' dtype: BYTES }"
      "feature { name: 'v' dtype: INT64 kind: VARIABLE } feature { name: 't' dtype: BYTES kind: VARIABLE }"
      "feature { name: 'p' dtype: INT64 kind: FIXED_SEQUENCE default_value { int64_value: -1 } }"
      "batch { global_batch_size: 10 valid_mask: 'ok' }"));
  REQUIRE(feeder.elements().size() == 7);
  CHECK(feeder.elements().back().name == "ok");
  std::set<std::string> kinds;
  while (const Batch batch = feeder.next())
    for (const ElementSpec& element : feeder.elements()) {
      INFO(element.name);
      for (const std::string& tensor : element.tensors()) CHECK_NOTHROW(batch.at(tensor));
      const bool bytes = element.dtype == DType::bytes;
      kinds.insert(fmt::format("{} {}", static_cast<int>(element.kind), bytes));
      const TensorView& main = batch.at(element.tensors().front());
      CHECK(main.dtype == (bytes ? DType::uint8 : element.dtype));
      if (bytes) continue;
      const bool padded = element.kind == ElementSpec::Kind::padded;
      CHECK(main.shape == (padded ? element.shape.with_rows(main.shape[1]) : element.shape).with_rows(main.shape[0]));
      if (padded) CHECK(element.padding.size() == size_of(element.dtype));
    }
  CHECK(kinds == std::set<std::string>{"0 false", "0 true", "1 false", "2 false", "2 true"});
}

TEST_CASE("no limit of time is too long") {
  const Data data({1000});
  Feeder feeder(data.pipeline("batch { global_batch_size: 10 } parallelism { host_prefetch: 2 }"));
  Batch batch;
  for (int i = 0; i < 100; i++) CHECK(feeder.next(0, std::chrono::nanoseconds::max(), batch) == Next::batch);
  CHECK(feeder.next(0, std::chrono::nanoseconds::max(), batch) == Next::end_of_epoch);
}

TEST_CASE("an epoch as long as the ring ends, though the caller holds all of it") {
  const Data data({30});
  for (int i = 0; i < 100; i++) {
    Feeder feeder(data.pipeline("batch { global_batch_size: 10 } parallelism { host_prefetch: 2 }"));
    std::vector<Batch> held;
    for (int step = 0; step < 3; step++) held.push_back(feeder.next());
    CHECK_FALSE(feeder.next());
    CHECK(category_of([&] { feeder.next(); }) == "stalled");  // the next epoch's first batch needs a buffer
  }
}
