// Variables on GPUs. Each rank is a thread with a GPU of its own, and must reach the values that the host reaches, bit
// for bit. The test runs on real GPUs with NCCL, and on fake ones (support/fake_nccl.h).
#include "gpu_replicas.h"
#include "support/catch.h"
#include "support/no_gpus.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

namespace {

/// Returns whether this combination can run. With NCCL, also inside machines, each rank needs a GPU of its own.
bool can_be(Mode mode, Owners owners, int ranks) {
  const bool two = mode == Mode::two_machines;
  if (two && ranks % 2 != 0) return false;
  return !(two || owners == Owners::on_gpus) || ranks <= visible_gpus().count;
}

constexpr struct {
  Mode mode;
  Owners owners;
} ways[] = {{Mode::replicated, Owners::on_gpus},       {Mode::replicated, Owners::on_host},
            {Mode::parameter_server, Owners::on_gpus}, {Mode::parameter_server, Owners::on_host},
            {Mode::two_machines, Owners::on_gpus},     {Mode::two_machines, Owners::on_host}};

}  // namespace

TEST_CASE("GPUs: all ranks have the values that the host would have") {
  if (no_gpus()) return;
  const bool check_finite = GENERATE(true, false);
  for (const int ranks : {1, 2, 3, 4})
    for (const auto [mode, owners] : ways)
      for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
        if (!can_be(mode, owners, ranks)) continue;
        INFO(static_cast<int>(owners) << " " << static_cast<int>(mode) << " " << name(dtype) << " " << ranks);
        std::vector<Values> had(static_cast<size_t>(ranks));
        const auto train = [&](GpuModel& model, DataParallel& training) {
          for (int step = 0; step < 5; step++)
            expect(model.step(training, gradients(model.rank(), step, dtype), 4), "not finite");
          had[static_cast<size_t>(model.rank())] = model.values();
        };
        CHECK(on_gpus(mode, ranks, owners, dtype, train, check_finite) ==
              std::vector<std::string>(static_cast<size_t>(ranks)));
        const Values right = wanted(ranks, 5, dtype, 4, machines_of(mode, ranks));
        for (const Values& values : had) CHECK(values == right);
      }
}

TEST_CASE("GPUs: a gradient that is not finite on one rank changes nothing on any") {
  if (no_gpus()) return;
  for (const int ranks : {1, 2, 3, 4})
    for (const auto [mode, owners] : ways) {
      if (!can_be(mode, owners, ranks)) continue;
      CHECK(on_gpus(mode, ranks, owners, DType::float16, [&](GpuModel& model, DataParallel& training) {
              for (const bool bad : {false, true, false}) {
                const Values before = model.values();
                Gradients now = gradients(model.rank(), 0, DType::float16);
                const uint16_t infinity = 0x7c00;
                if (bad && model.rank() == ranks - 1) std::memcpy(now[3].data(), &infinity, sizeof infinity);
                expect(model.step(training, now, 8) != bad, "another verdict");
                expect((model.values() == before) == bad, "values");
              }
            }) == std::vector<std::string>(static_cast<size_t>(ranks)));
    }
}

TEST_CASE("GPUs: the ranks of a machine have the same buckets, wherever its leader sends the gradients") {
  if (no_gpus()) return;
  const int ranks = 4;
  if (visible_gpus().count < ranks) return skip("4 GPUs are wanted");
  Communicators communicators(Mode::two_machines, ranks, [&](const std::vector<int>& members, bool leaders) {
    return leaders ? between_threads(members.size()) : between_gpus(members);
  });
  CHECK(side_by_side(ranks, [&](int rank) {
          const Communicators::Part part = communicators.part(rank);
          // 4 MiB: the default size of a bucket is this on the host, and more on GPUs.
          constexpr int64_t elements = 1 << 20;
          const GpuModel model(rank, DType::float32);
          const DeviceBuffer values(4 * elements * sizeof(float)), gradients(4 * elements * sizeof(float));
          for (const DeviceBuffer* buffer : {&values, &gradients})
            require(cudaMemsetAsync(buffer->data(), 0, buffer->size(), model.stream()));
          std::vector<Variable> variables;
          for (int64_t first = 0; first < 4 * elements; first += elements)  // two of each leader
            variables.push_back({"v",
                                 {static_cast<float*>(values.data()) + first, elements},
                                 {static_cast<float*>(gradients.data()) + first, DType::float32, {elements}}});
          const auto training = distributed_replicated(
              part.inside(), part.among_leaders ? part.among_leaders() : nullptr, variables,
              [](size_t, auto value, auto by) { descend(value, by); }, model.options());
          for (int step = 0; step < 2; step++) {
            for (size_t v = 0; v < variables.size(); v++) training->ready(v);
            expect(training->step(), "not finite");
          }
          training->wait();
        }) == std::vector<std::string>(ranks));
}

TEST_CASE("GPUs, asynchronous: no update is lost, wherever the servers are") {
  if (no_gpus()) return;
  const int gpus = visible_gpus().count;
  for (const Owners owners : {Owners::on_gpus, Owners::on_host}) {
    // There is one server. If it is on a GPU, it has the last one and each worker another.
    const int workers = owners == Owners::on_gpus ? std::min(gpus - 1, 3) : 3, steps = 20;
    if (workers == 0) continue;
    std::vector<Invite> pairs;
    for (int worker = 0; worker < workers; worker++)
      pairs.push_back(owners == Owners::on_gpus ? between_gpus({workers, worker}) : between_threads(2));
    Served served;
    Values values;
    CHECK(side_by_side(workers + 1, [&](int thread) {
            std::vector<Ends> ends;
            if (thread == workers) {
              for (const Invite& pair : pairs) ends.push_back(pair(0)());
              if (owners == Owners::on_host) {
                Model model(0, DType::float32);
                served = serve_parameters(ends, 0, 1, model.variables,
                                          [](size_t, auto value, auto by) { descend(value, by); });
                values = model.values;
              } else {
                GpuModel model(workers, DType::float32);
                served = serve_parameters(ends, 0, 1, model.variables(), model.apply(), model.options());
                values = model.values();
              }
              return;
            }
            GpuModel model(thread, DType::float32);
            const auto training =
                asynchronous({pairs[static_cast<size_t>(thread)](1)()}, model.variables(), model.options());
            for (int step = 0; step < steps; step++) {
              const Values before = model.values();
              expect(model.step(*training, tens(1), 1), "not finite");
              expect(model.values()[1][0] <= before[1][0] - 1, "its own update is lost");
            }
          }) == std::vector<std::string>(static_cast<size_t>(workers + 1)));
    CHECK(served.updates == static_cast<uint64_t>(workers * steps));
    const float first = first_values(owners == Owners::on_gpus ? workers : 0)[0][0];
    for (const auto& of_variable : values)
      for (const float value : of_variable) CHECK(value == first - static_cast<float>(workers * steps));
  }
}
