// Whoever applies the gradients: all ranks have the values that one rank with all of them would have.
#include "feedline/data_parallel.h"

#include <cmath>
#include <cstring>
#include <random>

#include "feedline/error.h"
#include "gpu/dispatch.h"
#include "gpu/reduction.h"
#include "support/catch.h"
#include "support/launch.h"
#include "support/ranks.h"
#include "support/tcp.h"

using namespace feedline;
using feedline::test::side_by_side;

namespace {

using Ends = std::shared_ptr<Communicator>;
using Values = std::vector<std::vector<float>>;

const std::vector<size_t> sizes = {1, 1000, 37, 5, 300};

enum class Mode { replicated, parameter_server, two_machines };

enum class Carrier { memory, tcp };

/// Ranks that have one communicator, and how each comes to its end of it.
class Meeting {
 public:
  Meeting(int ranks, Carrier carrier)
      : ranks_(ranks),
        port_(carrier == Carrier::tcp ? test::free_port() : 0),
        ends_(carrier == Carrier::tcp ? std::vector<std::unique_ptr<Communicator>>()
                                      : communicators_between_threads(ranks)) {}
  Ends join(int rank) {
    if (port_ == 0) return std::move(ends_[static_cast<size_t>(rank)]);
    return tcp_communicator(test::tcp_options(rank, ranks_, port_));
  }

 private:
  int ranks_, port_;
  std::vector<std::unique_ptr<Communicator>> ends_;
};

/// The communicators of a training, of all its ranks.
class Group {
 public:
  Group(Mode mode, int ranks, Carrier carrier = Carrier::memory)
      : mode_(mode), in_machine_(mode == Mode::two_machines ? ranks / 2 : ranks), leaders_(2, carrier) {
    for (int machine = 0; machine < ranks / in_machine_; machine++) machines_.emplace_back(in_machine_, carrier);
  }
  std::unique_ptr<DataParallel> training(int rank, std::vector<Variable> variables, Apply apply) {
    constexpr DataParallelOptions small{.bucket_bytes = 1500};
    const int machine = rank / in_machine_, place = rank % in_machine_;
    Ends mine = machines_[static_cast<size_t>(machine)].join(place);
    if (mode_ == Mode::replicated) return replicated(mine, std::move(variables), std::move(apply), small);
    if (mode_ == Mode::parameter_server) return parameter_server(mine, std::move(variables), std::move(apply), small);
    return distributed_replicated(mine, place == 0 ? leaders_.join(machine) : nullptr, std::move(variables),
                                  std::move(apply), small);
  }

 private:
  Mode mode_;
  int in_machine_;  // ranks
  std::vector<Meeting> machines_;
  Meeting leaders_;
};

/// A rank's gradients of a step, as they are stored.
std::vector<std::byte> gradient(int rank, int step, size_t variable, DType dtype) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + step * 10) + static_cast<unsigned>(variable));
  std::vector<std::byte> bytes(sizes[variable] * size_of(dtype));
  gpu::with_type(dtype, [&](auto type) {
    using T = typename decltype(type)::t;
    for (size_t i = 0; i < sizes[variable]; i++) {
      const T stored = gpu::cast<T>(std::normal_distribution<float>()(random));
      std::memcpy(bytes.data() + i * sizeof(T), &stored, sizeof(T));
    }
  });
  return bytes;
}

void descend(std::span<float> value, std::span<const float> by) {
  for (size_t i = 0; i < value.size(); i++) value[i] -= 0.1F * by[i];
}

Values first_values(int rank) {
  Values values;
  for (const size_t size : sizes) values.emplace_back(size, 1.5F + static_cast<float>(rank));
  return values;
}

/// What one rank would have that computes on all rows.
Values wanted(int ranks, int steps, DType dtype, float loss_scale, const std::vector<std::vector<int>>& machines) {
  Values values = first_values(0);
  for (int step = 0; step < steps; step++)
    for (size_t v = 0; v < sizes.size(); v++) {
      const auto sum = [&](const std::vector<std::vector<std::byte>>& parts) {
        std::vector<const std::byte*> from;
        for (const auto& part : parts) from.push_back(part.data());
        std::vector<std::byte> to(parts[0].size());
        gpu::reduce(from, dtype, Reduction::sum, sizes[v], to.data());
        return to;
      };
      std::vector<std::vector<std::byte>> of_machines;
      for (const auto& machine : machines) {
        std::vector<std::vector<std::byte>> parts;
        for (const int rank : machine) parts.push_back(gradient(rank, step, v, dtype));
        of_machines.push_back(sum(parts));
      }
      const std::vector<std::byte> all = sum(of_machines);
      std::vector<float> mean(sizes[v]);
      gpu::with_type(dtype, [&](auto type) {
        using T = typename decltype(type)::t;
        for (size_t i = 0; i < mean.size(); i++) {
          T stored;
          std::memcpy(&stored, all.data() + i * sizeof(T), sizeof(T));
          mean[i] = gpu::cast<float>(stored) / (loss_scale * static_cast<float>(ranks));
        }
      });
      descend(values[v], mean);
    }
  return values;
}

std::vector<std::vector<int>> machines_of(Mode mode, int ranks) {
  std::vector<std::vector<int>> machines(mode == Mode::two_machines ? 2 : 1);
  for (int rank = 0; rank < ranks; rank++)
    machines[static_cast<size_t>(rank) * machines.size() / static_cast<size_t>(ranks)].push_back(rank);
  return machines;
}

/// A rank's model: values, and gradients as they are stored.
struct Model {
  explicit Model(int rank, DType dtype) : values(first_values(rank)) {
    for (size_t v = 0; v < sizes.size(); v++) gradients.push_back(gradient(rank, 0, v, dtype));
    for (size_t v = 0; v < sizes.size(); v++)
      variables.push_back(
          {"v" + std::to_string(v), values[v], {gradients[v].data(), dtype, {static_cast<int64_t>(sizes[v])}}});
  }
  Values values;
  std::vector<std::vector<std::byte>> gradients;
  std::vector<Variable> variables;
};

}  // namespace

TEST_CASE("all ranks have the values that one rank with all rows has") {
  const Carrier carrier = GENERATE(Carrier::memory, Carrier::tcp);
  for (const Mode mode : {Mode::replicated, Mode::parameter_server, Mode::two_machines})
    for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16})
      for (const int ranks : {1, 2, 3, 4}) {
        if (mode == Mode::two_machines && ranks % 2 != 0) continue;
        INFO(static_cast<int>(carrier) << " " << static_cast<int>(mode) << " " << name(dtype) << " " << ranks);
        Group group(mode, ranks, carrier);
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

TEST_CASE("a parameter server owns about as much as the others, and applies what it owns alone") {
  Group group(Mode::parameter_server, 2);
  std::vector<std::vector<size_t>> applied(2);
  std::vector<int> owners;
  CHECK(side_by_side(2, [&](int rank) {
          Model model(rank, DType::float32);
          auto& mine = applied[static_cast<size_t>(rank)];
          const auto training = group.training(rank, model.variables, [&](size_t v, auto, auto) { mine.push_back(v); });
          if (rank == 0)
            for (size_t v = 0; v < sizes.size(); v++) owners.push_back(training->owner(v));
          for (size_t v = 0; v < sizes.size(); v++) training->ready(v);
          training->step();
        }) == std::vector<std::string>(2));
  CHECK(owners == std::vector<int>{1, 0, 1, 1, 1});  // 1000, and 300 + 37 + 5 + 1
  CHECK(applied[0] == std::vector<size_t>{1});
  CHECK(applied[1].size() == 4);
}

TEST_CASE("a gradient that is not finite on one rank changes nothing on any") {
  const Carrier carrier = GENERATE(Carrier::memory, Carrier::tcp);
  for (const Mode mode : {Mode::replicated, Mode::parameter_server, Mode::two_machines}) {
    Group group(mode, 4, carrier);
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

TEST_CASE("what is used wrongly, or fails on one rank, is told") {
  Group group(Mode::replicated, 2, GENERATE(Carrier::memory, Carrier::tcp));
  const auto thrown = side_by_side(2, [&](int rank) {
    Model model(rank, DType::float32);
    const auto training =
        group.training(rank, model.variables, [](size_t, auto value, auto by) { descend(value, by); });
    training->ready(3);
    if (rank == 1) training->ready(3);
    for (size_t v = 0; v < sizes.size(); v++)
      if (v != 3) training->ready(v);
    training->step();
  });
  CHECK(thrown[1] == "variable 'v3' is ready twice in a step [bad_pipeline]");
  CHECK(thrown[0].find("rank 1") == 0);

  auto alone = std::move(communicators_between_threads(1)[0]);
  Model model(0, DType::float32);
  const auto training = replicated(std::move(alone), model.variables, [](size_t, auto, auto) {});
  CHECK_THROWS_WITH(training->step(), "step: the gradient of variable 'v0' is not ready [bad_pipeline]");
  model.variables[2].gradient.shape = {36};
  CHECK_THROWS_WITH(
      replicated(std::move(communicators_between_threads(1)[0]), model.variables, [](size_t, auto, auto) {}),
      "variable 'v2': 37 values, and a gradient of 36 [bad_pipeline]");
}

TEST_CASE("asynchronous: no update is lost, and a worker that is lost takes nobody along") {
  constexpr int servers = 2, workers = 3, steps = 200;
  const Carrier carrier = GENERATE(Carrier::memory, Carrier::tcp);
  // pairs[w][s]: rank 0 the server, rank 1 the worker.
  std::vector<std::vector<Meeting>> pairs(workers);
  for (auto& of_worker : pairs)
    for (int s = 0; s < servers; s++) of_worker.emplace_back(2, carrier);
  std::vector<Served> served(servers);
  std::vector<Values> values(servers, first_values(0));
  std::vector<int> owners;
  CHECK(side_by_side(servers + workers, [&](int thread) {
          Model model(0, DType::float32);
          if (thread < servers) {
            std::vector<Ends> ends;
            for (auto& of_worker : pairs) ends.push_back(of_worker[static_cast<size_t>(thread)].join(0));
            served[static_cast<size_t>(thread)] = serve_parameters(
                ends, thread, servers, model.variables, [](size_t, std::span<float> value, std::span<const float> by) {
                  for (size_t i = 0; i < value.size(); i++) value[i] += by[i];
                });
            values[static_cast<size_t>(thread)] = model.values;
            return;
          }
          const int worker = thread - servers;
          std::vector<Ends> ends;
          for (auto& pair : pairs[static_cast<size_t>(worker)]) ends.push_back(pair.join(1));
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
