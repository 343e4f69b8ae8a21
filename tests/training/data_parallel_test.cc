// In every mode, all ranks must have the values that a single rank with all gradients would have.
#include "feedline/data_parallel.h"

#include <array>
#include <cmath>
#include <condition_variable>
#include <latch>
#include <limits>
#include <mutex>
#include <utility>

#include "feedline/error.h"
#include "replicas.h"
#include "support/catch.h"
#include "support/launch.h"
#include "support/process.h"
#include "support/ranks.h"
#include "support/tcp.h"

using namespace feedline;
using namespace feedline::test;

namespace {

enum class Carrier { memory, tcp };

Invite over(Carrier carrier, size_t ranks) {
  if (carrier == Carrier::memory) return between_threads(ranks);
  return [ranks, port = free_port()](int place) {
    return [=] { return tcp_communicator(tcp_options(place, static_cast<int>(ranks), port)); };
  };
}

Communicators communicators(Mode mode, int ranks, Carrier carrier) {
  return {mode, ranks, [&](const std::vector<int>& members, bool) { return over(carrier, members.size()); }};
}

}  // namespace

TEST_CASE("all ranks have the values that one rank with all rows has") {
  const Carrier carrier = GENERATE(Carrier::memory, Carrier::tcp);
  for (const Mode mode : modes)
    for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16})
      for (const int ranks : {1, 2, 3, 4}) {
        if (mode == Mode::two_machines && ranks % 2 != 0) continue;
        INFO(static_cast<int>(carrier) << " " << static_cast<int>(mode) << " " << name(dtype) << " " << ranks);
        Communicators group = communicators(mode, ranks, carrier);
        std::vector<Values> had(static_cast<size_t>(ranks));
        const auto thrown = side_by_side(ranks, [&](int rank) {
          Model model(rank, dtype);
          const auto training =
              group.training(rank, model.variables, [](size_t, auto value, auto by) { descend(value, by); });
          for (int step = 0; step < 5; step++) {
            for (size_t v = sizes.size(); v-- > 0;) {
              const auto bytes = gradient(rank, step, v, dtype);
              std::memcpy(model.gradients[v].data(), bytes.data(), bytes.size());
              training->ready(v);
            }
            if (!training->step(4)) throw std::runtime_error("not finite");
          }
          had[static_cast<size_t>(rank)] = model.values;
        });
        CHECK(thrown == std::vector<std::string>(static_cast<size_t>(ranks)));
        const Values right = wanted(ranks, 5, dtype, 4, machines_of(mode, ranks));
        for (const Values& values : had) CHECK(values == right);
      }
}

TEST_CASE("a parameter server owns about as much as the others, and applies only what it owns") {
  Communicators group = communicators(Mode::parameter_server, 2, Carrier::memory);
  std::vector<std::vector<size_t>> applied(2);
  std::vector<int> owners;
  CHECK(side_by_side(2, [&](int rank) {
          Model model(rank, DType::float32);
          auto& mine = applied[static_cast<size_t>(rank)];
          const auto training = group.training(rank, model.variables, [&](size_t v, auto, auto) { mine.push_back(v); });
          if (rank == 0)
            for (size_t v = 0; v < sizes.size(); v++) owners.push_back(training->owner(v));
          for (size_t v = 0; v < sizes.size(); v++) training->ready(v);
          if (!training->step()) throw std::runtime_error("not finite");
        }) == std::vector<std::string>(2));
  CHECK(owners == std::vector<int>{1, 0, 1, 1, 1});  // 1000 values, and 300 + 37 + 5 + 1
  CHECK(applied[0] == std::vector<size_t>{1});
  CHECK(applied[1].size() == 4);
}

namespace {

/// A communicator that counts the calls that have ended.
class Counted final : public Communicator {
 public:
  explicit Counted(std::unique_ptr<Communicator> of) : of_(std::move(of)) {}

  int rank() const noexcept override { return of_->rank(); }
  int size() const noexcept override { return of_->size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream stream) override {
    count([&] { of_->all_gather(mine, all, stream); });
  }
  void broadcast(std::span<std::byte> data, int root, Stream stream) override {
    count([&] { of_->broadcast(data, root, stream); });
  }
  void all_reduce(TensorView data, Reduction reduction, Stream stream) override {
    count([&] { of_->all_reduce(data, reduction, stream); });
  }
  void reduce_scatter(TensorView data, TensorView mine, Reduction reduction, Stream stream) override {
    count([&] { of_->reduce_scatter(data, mine, reduction, stream); });
  }
  void send_receive(std::span<const Part> sends, std::span<const Part> receives, Stream stream) override {
    count([&] { of_->send_receive(sends, receives, stream); });
  }
  void barrier() override {
    count([&] { of_->barrier(); });
  }
  void abort(const Error& why) noexcept override { of_->abort(why); }
  std::optional<Error> failure() const override { return of_->failure(); }

  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  /// Returns false if there are not more within a minute.
  bool wait_for_more_than(int calls) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return calls_ > calls; });
  }

 private:
  template <typename Call>
  void count(Call call) {
    call();
    const std::lock_guard lock(mutex_);
    calls_++;
    changed_.notify_all();
  }
  const std::unique_ptr<Communicator> of_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
};

}  // namespace

TEST_CASE("what is full is sent while backward goes on") {
  const Mode mode = GENERATE(Mode::replicated, Mode::parameter_server);
  auto ends = communicators_between_threads(2);
  CHECK(side_by_side(2, [&](int rank) {
          Model model(rank, DType::float32);
          const auto counted = std::make_shared<Counted>(std::move(ends[static_cast<size_t>(rank)]));
          const auto training = Communicators::Part{mode, [&] { return counted; }, nullptr}.training(
              model.variables, [](size_t, auto value, auto by) { descend(value, by); });
          for (int step = 0; step < 3; step++) {
            const int before = counted->calls();
            for (size_t v = sizes.size(); v-- > 0;)
              if (v != 1) training->ready(v);
            if (!counted->wait_for_more_than(before)) throw std::runtime_error("nothing was sent");
            training->ready(1);
            if (!training->step()) throw std::runtime_error("not finite");
          }
        }) == std::vector<std::string>(2));
}

TEST_CASE("a loss scale grows while all is finite, and backs off when it is not") {
  LossScale scale(8, 3);
  const auto after = [&](std::initializer_list<bool> steps) {
    for (const bool finite : steps) scale.update(finite);
    return scale.value();
  };
  CHECK(after({true, true}) == 8);
  CHECK(after({true}) == 16);
  CHECK(after({true, true, false}) == 8);
  CHECK(after({true, true}) == 8);  // begins to count again
  CHECK(after({true}) == 16);
  CHECK(after({false, false, false, false, false, false}) == 1);  // the smallest scale
}

TEST_CASE("a gradient that is not finite on one rank changes nothing on any") {
  const Carrier carrier = GENERATE(Carrier::memory, Carrier::tcp);
  for (const Mode mode : modes) {
    Communicators group = communicators(mode, 4, carrier);
    CHECK(side_by_side(4, [&](int rank) {
            Model model(rank, DType::float16);
            const auto training =
                group.training(rank, model.variables, [](size_t, auto value, auto by) { descend(value, by); });
            LossScale scale(8, 2);
            for (const bool bad : {false, true, false}) {
              const Values before = model.values;
              const uint16_t infinity = 0x7c00;
              for (size_t v = 0; v < sizes.size(); v++) {
                const auto bytes = gradient(rank, 0, v, DType::float16);
                std::memcpy(model.gradients[v].data(), bytes.data(), bytes.size());
                if (bad && rank == 2 && v == 3) std::memcpy(model.gradients[v].data(), &infinity, 2);
                training->ready(v);
              }
              const bool finite = training->step(scale.value());
              scale.update(finite);
              if (finite == bad || (before == model.values) != bad) throw std::runtime_error("applied");
            }
            if (scale.value() != 4) throw std::runtime_error("another scale");
          }) == std::vector<std::string>(4));
  }
}

TEST_CASE("without check_finite a step applies what it is given") {
  for (const Mode mode : modes) {
    Communicators group = communicators(mode, 2, Carrier::memory);
    CHECK(side_by_side(2, [&](int rank) {
            Model model(rank, DType::float32);
            const auto training = group.part(rank).training(
                model.variables, [](size_t, auto value, auto by) { descend(value, by); }, {.check_finite = false});
            const float infinity = std::numeric_limits<float>::infinity();
            if (rank == 1) std::memcpy(model.gradients[3].data(), &infinity, sizeof infinity);
            for (size_t v = 0; v < sizes.size(); v++) training->ready(v);
            if (!training->step()) throw std::runtime_error("a verdict");
            if (std::isfinite(model.values[3][0])) throw std::runtime_error("not applied");
            if (!std::isfinite(model.values[3][1])) throw std::runtime_error("other values");
          }) == std::vector<std::string>(2));
  }
}

TEST_CASE("misuse, or a failure of one rank, is reported") {
  Communicators group = communicators(Mode::replicated, 2, GENERATE(Carrier::memory, Carrier::tcp));
  const auto thrown = side_by_side(2, [&](int rank) {
    Model model(rank, DType::float32);
    const auto training =
        group.training(rank, model.variables, [](size_t, auto value, auto by) { descend(value, by); });
    training->ready(3);
    if (rank == 1) training->ready(3);
    for (size_t v = 0; v < sizes.size(); v++)
      if (v != 3) training->ready(v);
    if (!training->step()) throw std::runtime_error("not finite");
  });
  CHECK(thrown[1] ==
        "ready: variable 'v3' was already ready in this step; call ready() only once for each variable, and then "
        "step() [bad_pipeline]");
  CHECK(thrown[0].find("step 0 of the training: rank 1, call ") == 0);

  auto alone = std::move(communicators_between_threads(1)[0]);
  Model model(0, DType::float32);
  const auto training = replicated(std::move(alone), model.variables, [](size_t, auto, auto) {});
  CHECK_THROWS_WITH(
      training->step(),
      "step: ready() was not called for variable 'v0' in this step; call ready() for each variable before step() "
      "[bad_pipeline]");
  model.variables[2].gradient.shape = {36};
  CHECK_THROWS_WITH(
      replicated(std::move(communicators_between_threads(1)[0]), model.variables, [](size_t, auto, auto) {}),
      "variable 'v2' has 37 values, but its gradient has 36; give a gradient with as many elements as the variable has "
      "values [bad_pipeline]");
}

namespace {

/// Takes a rank's end of a communicator and keeps it in `kept`, so that the rank does not leave the others when its
/// training ends. `invitation` then returns that end.
void keep(Invitation& invitation, Ends& kept) {
  if (!invitation) return;
  kept = invitation();
  invitation = [&kept] { return kept; };
}

}  // namespace

TEST_CASE("a failure between machines reaches all ranks of each machine, with its reason") {
  Communicators group = communicators(Mode::two_machines, 4, Carrier::memory);
  std::latch others_ended(2);
  const auto thrown = side_by_side(4, [&](int rank) {
    Ends leaders;
    Communicators::Part part = group.part(rank);
    keep(part.among_leaders, leaders);
    Model model(rank, DType::float32);
    const auto training = part.training(model.variables, [](size_t, auto value, auto by) { descend(value, by); });
    if (rank == 0) leaders->abort(Error(Category::io_error, "a broken cable"));
    std::string what;
    try {
      for (size_t v = 0; v < sizes.size(); v++) training->ready(v);
      static_cast<void>(training->step());
    } catch (const Error& error) {
      what = error.what();
    }
    leaders ? others_ended.wait() : others_ended.count_down();  // leaders keep their training until then
    throw std::runtime_error(what);
  });
  for (const std::string& what : thrown) CHECK_THAT(what, Catch::EndsWith("a broken cable [io_error]"));
}

TEST_CASE("if a rank cannot make its training, the others are told why") {
  for (const Mode mode : modes) {
    Communicators group = communicators(mode, 2, Carrier::memory);
    std::array<Ends, 2> inside, leaders;
    const auto thrown = side_by_side(2, [&](int rank) {
      Communicators::Part part = group.part(rank);
      keep(part.inside, inside[static_cast<size_t>(rank)]);
      keep(part.among_leaders, leaders[static_cast<size_t>(rank)]);
      Model model(rank, DType::float32);
      if (rank == 1) model.variables[2].gradient.shape = {36};
      part.training(model.variables, [](size_t, auto, auto) {});
    });
    for (const std::string& what : thrown) CHECK_THAT(what, Catch::Contains("variable 'v2' has 37 values"));
  }
  for (const bool server_fails : {false, true}) {
    const auto pair = communicators_between_threads(2);
    const Ends ends[] = {Ends(pair[0].get(), [](auto*) {}), Ends(pair[1].get(), [](auto*) {})};
    Served served;
    auto thrown = side_by_side(2, [&](int rank) {
      Model model(rank, DType::float32);
      if ((rank == 0) == server_fails) model.variables[2].gradient.shape = {36};
      if (rank == 1) return static_cast<void>(asynchronous({ends[1]}, model.variables));
      served = serve_parameters({ends[0]}, 0, 1, model.variables, [](size_t, auto, auto) {});
    });
    if (!server_fails) {
      REQUIRE(served.lost.size() == 1);
      thrown[0] = served.lost[0].what();
    }
    for (const std::string& what : thrown) CHECK_THAT(what, Catch::Contains("variable 'v2' has 37 values"));
  }
}

TEST_CASE("a training without a thread is refused by an Error") {
  SyscallHook* const start_thread = find_hook("start thread");
  REQUIRE(start_thread);
  start_thread->fail_nth_call(1);
  const Model model(0, DType::float32);
  const auto nothing = [](size_t, auto, auto) {};
  CHECK_THROWS_WITH(replicated(between_threads(1)(0)(), model.variables, nothing),
                    Catch::StartsWith("the thread of the training cannot be started: "));
  start_thread->fail_nth_call(0);
}

TEST_CASE("asynchronous: servers that do not exist, and communicators that are not pairs, are refused") {
  const Model model(0, DType::float32);
  const auto serve = [&](Ends worker, int server, int servers) {
    serve_parameters({std::move(worker)}, server, servers, model.variables, [](size_t, auto, auto) {});
  };
  for (const auto& [server, servers] : {std::pair(0, 0), {0, -1}, {-1, 2}, {2, 2}})
    CHECK_THROWS_WITH(serve(between_threads(2)(0)(), server, servers),
                      Catch::StartsWith("serve_parameters: there is no server " + std::to_string(server) + " of " +
                                        std::to_string(servers) + " servers"));
  CHECK_THROWS_WITH(serve(between_threads(2)(1)(), 0, 1),
                    Catch::StartsWith("serve_parameters: this rank is rank 1 of 2 in a communicator, but must be rank "
                                      "0 of 2; "));
  CHECK_THROWS_WITH(asynchronous({between_threads(3)(1)()}, model.variables),
                    Catch::StartsWith("asynchronous: this rank is rank 1 of 3 in a communicator, but must be rank 1 of "
                                      "2; "));
}

TEST_CASE("asynchronous: no update is lost, and a lost worker ends no other") {
  constexpr int servers = 2, workers = 3, steps = 200;
  const Carrier carrier = GENERATE(Carrier::memory, Carrier::tcp);
  // pairs[w][s]: rank 0 is server s, rank 1 is worker w.
  std::vector<std::vector<Invite>> pairs(workers);
  for (auto& of_worker : pairs)
    for (int s = 0; s < servers; s++) of_worker.push_back(over(carrier, 2));
  std::vector<Served> served(servers);
  std::vector<Values> values(servers, first_values(0));
  std::vector<int> owners;
  CHECK(side_by_side(servers + workers, [&](int thread) {
          Model model(0, DType::float32);
          if (thread < servers) {
            std::vector<Ends> ends;
            for (auto& of_worker : pairs) ends.push_back(of_worker[static_cast<size_t>(thread)](0)());
            served[static_cast<size_t>(thread)] = serve_parameters(
                ends, thread, servers, model.variables, [](size_t, std::span<float> value, std::span<const float> by) {
                  for (size_t i = 0; i < value.size(); i++) value[i] += by[i];
                });
            values[static_cast<size_t>(thread)] = model.values;
            return;
          }
          const int worker = thread - servers;
          std::vector<Ends> ends;
          for (auto& pair : pairs[static_cast<size_t>(worker)]) ends.push_back(pair(1)());
          const std::vector<Ends> kept = ends;
          const auto training = asynchronous(std::move(ends), model.variables);
          if (worker == 0)
            for (size_t v = 0; v < sizes.size(); v++) owners.push_back(training->owner(v));
          for (int step = 0; step < (worker == 2 ? 50 : steps); step++) {
            for (size_t v = 0; v < sizes.size(); v++) {
              for (size_t i = 0; i < sizes[v]; i++) {
                const float one = 4;
                std::memcpy(model.gradients[v].data() + i * sizeof one, &one, sizeof one);
              }
              training->ready(v);
            }
            const float before = model.values[1][0];
            if (!training->step(4) || model.values[1][0] < before + 1) throw std::runtime_error("lost");
          }
          if (worker != 2) return;
          const float nan = std::nanf("");
          std::memcpy(model.gradients[0].data(), &nan, sizeof nan);
          for (size_t v = 0; v < sizes.size(); v++) training->ready(v);
          if (training->step()) throw std::runtime_error("applied");
          for (const Ends& end : kept) end->abort(Error(Category::io_error, "pulled the plug"));
        }) == std::vector<std::string>(servers + workers));
  for (size_t v = 0; v < sizes.size(); v++)
    for (const float value : values[static_cast<size_t>(owners[v])][v]) CHECK(value == 1.5F + 2 * steps + 50);
  for (const Served& by : served) {
    CHECK(by.updates == 2 * steps + 50);
    REQUIRE(by.lost.size() == 1);
    CHECK(by.lost[0].message().find("pulled the plug") != std::string::npos);
  }
}

TEST_CASE("asynchronous: a worker without a thread is refused with the reason, and the others are served") {
  constexpr int workers = 3, steps = 5;
  std::vector<Ends> at_server, at_worker;
  for (int worker = 0; worker < workers; worker++) {
    auto pair = communicators_between_threads(2);
    at_server.push_back(std::move(pair[0]));
    at_worker.push_back(std::move(pair[1]));
  }
  SyscallHook* const start_thread = find_hook("start thread");
  REQUIRE(start_thread);
  start_thread->fail_nth_call(2);
  Served served;
  const auto thrown = side_by_side(workers + 1, [&](int thread) {
    Model model(0, DType::float32);
    if (thread == workers) {
      served = serve_parameters(at_server, 0, 1, model.variables, [](size_t, auto, auto) {});
      return;
    }
    const auto training = asynchronous({std::move(at_worker[static_cast<size_t>(thread)])}, model.variables);
    for (int step = 0; step < steps; step++) {
      for (size_t v = 0; v < sizes.size(); v++) training->ready(v);
      training->step();
    }
  });
  start_thread->fail_nth_call(0);
  for (const int thread : {0, 2, workers}) CHECK(thrown[static_cast<size_t>(thread)].empty());
  const std::string what = "the thread that serves a worker cannot be started: ";
  CHECK(thrown[1].find("rank 0, call 0: " + what) == 0);
  CHECK(served.updates == 2 * steps);
  REQUIRE(served.lost.size() == 1);
  CHECK(served.lost[0].message().find(what) == 0);
}
