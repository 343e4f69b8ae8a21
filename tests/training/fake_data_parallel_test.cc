// What only fake GPUs can show of variables on GPUs: what each failure leads to, and that everything is given back.
#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "gpu_replicas.h"
#include "support/catch.h"
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#include "support/trace_ranges.h"

using namespace feedline;
using namespace feedline::test;

namespace {

/// Returns the values as they are, whatever the streams have still to do.
Values values_now(const GpuModel& model) {
  Values now = first_values(0);
  for (size_t v = 0; v < sizes.size(); v++)
    require(cudaMemcpy(now[v].data(), model.variables()[v].value.data(), now[v].size() * sizeof(float),
                       cudaMemcpyDeviceToHost));
  return now;
}

/// Runs a parameter server on GPU 1, and `work` of a worker on GPU 0. Returns what each threw, the server's last.
std::vector<std::string> with_server(
    Served& served, Values& at_server, const std::function<void(GpuModel&, DataParallel&)>& work,
    const std::function<void(GpuModel&)>& prepare_server = [](GpuModel&) {}) {
  const Invite pair = between_gpus({1, 0});
  return side_by_side(2, [&](int rank) {
    GpuModel model(rank, DType::float32);
    if (rank == 0) return work(model, *asynchronous({Invite(pair)(1)()}, model.variables(), model.options()));
    prepare_server(model);
    served = serve_parameters({Invite(pair)(0)()}, 0, 1, model.variables(), model.apply(), model.options());
    at_server = model.values();
  });
}

SyscallHook& hook_named(const std::string& name) {
  const std::vector<SyscallHook*> hooks = SyscallHook::all();
  return **std::ranges::find(hooks, name, &SyscallHook::name);
}

bool nothing_is_left() {
  const FakeCudaState state = fake_cuda_state();
  return state.streams == 0 && state.events == 0 && state.allocations == 0 && fake_comms() == 0;
}

void two_steps(GpuModel& model, DataParallel& training) {
  for (int step = 0; step < 2; step++) model.step(training, gradients(model.rank(), step, DType::float32), 1);
  training.wait();
  const Mode any = Mode::replicated;  // for two ranks the sums do not depend on the mode
  expect(model.values() == wanted(2, 2, DType::float32, 1, machines_of(any, 2)), "other values");
}

}  // namespace

TEST_CASE("a training on GPUs gives back all it took, pins what it copies, and makes no context on other GPUs") {
  set_fake_gpus(4);
  for (const Owners owners : {Owners::on_gpus, Owners::on_host})
    for (const Mode mode : modes) {
      for (const std::string& thrown : on_gpus(mode, 2, owners, DType::float32, two_steps)) CHECK(thrown == "");
      CHECK(nothing_is_left());
      CHECK(fake_cuda_state().pinned == 0);
    }
  CHECK(fake_cuda_state().contexts == std::set<int>{0, 1});
}

TEST_CASE("whatever call of NCCL or CUDA fails on one rank, all end their training, and nothing is left on GPUs") {
  set_fake_gpus(2);
  const Owners owners = GENERATE(Owners::on_gpus, Owners::on_host);
  const Mode mode = GENERATE(Mode::replicated, Mode::two_machines);
  for (SyscallHook* hook : SyscallHook::all()) {
    const std::string name = hook->name();
    if (name.find("cuda") != 0 && name != "nccl") continue;
    // Every call of the start, then some of those of the steps. A call that polls has no last one.
    for (int64_t n = 1; n <= 40; n += n < 12 ? 1 : 4) {
      INFO(static_cast<int>(owners) << " " << static_cast<int>(mode) << ": " << name << ", call " << n);
      hook->fail_nth_call(n);
      const auto thrown = on_gpus(mode, 2, owners, DType::float32, two_steps);
      for (const std::string& what : thrown) CHECK(what != "other values");
      const bool came = !hook->pending();
      hook->fail_nth_call(0);
      if (!came) break;
      REQUIRE(nothing_is_left());
    }
  }
}

TEST_CASE("leaders apply nothing if NCCL fails while gradients of their machine are on their way") {
  set_fake_gpus(4);
  Communicators communicators(Mode::two_machines, 4,
                              [](const std::vector<int>& members, bool) { return between_gpus(members); });
  CHECK(side_by_side(4, [&](int rank) {
          Communicators::Part part = communicators.part(rank);
          GpuModel model(rank, DType::float32);
          const Ends machine = part.inside();
          part.inside = [machine] { return machine; };
          const auto training = part.training(model.variables(), model.apply(), model.options());
          training->wait();
          // The gradients of rank 1 come late, and then not at all. Leaders that did not wait for them have agreed by
          // then.
          if (rank == 1)
            run_on_stream(model.stream(), [machine] {
              std::this_thread::sleep_for(std::chrono::milliseconds(100));
              machine->abort(Error(Category::device_error, "a broken link"));
            });
          try {
            model.step(*training, gradients(rank, 0, DType::float32), 1);
            training->wait();
            expect(false, "a step with half of the gradients");
          } catch (const Error&) {
          }
          const Values now = model.values(), before = first_values(0);
          for (size_t v = 0; v < now.size(); v++)
            if (2 * training->owner(v) == rank) expect(now[v] == before[v], "half of the gradients were applied");
        }) == std::vector<std::string>(4));
}

TEST_CASE("variables, stream and communicator go together, or it is said") {
  set_fake_gpus(2);
  GpuModel model(0, DType::float32);
  const Apply nothing = [](size_t, auto, auto) {};
  const auto make = [&](const DataParallelOptions& options, Ends ends) {
    replicated(std::move(ends), model.variables(), nothing, options);
  };
  DataParallelOptions options = model.options();
  options.stream = Stream::host;
  CHECK_THROWS_WITH(
      make(options, between_threads(1)(0)()),
      "options.stream: the stream belongs to a different device than the variables, or is the per-thread default "
      "stream, which several threads cannot share; use a different stream of GPU 0 [bad_pipeline]");
  options.stream = Stream::cuda_per_thread;
  CHECK_THROWS_WITH(
      make(options, between_threads(1)(0)()),
      "options.stream: the stream belongs to a different device than the variables, or is the per-thread default "
      "stream, which several threads cannot share; use a different stream of GPU 0 [bad_pipeline]");
  CHECK_THROWS_WITH(
      make({}, between_gpus({0})(0)()),
      "the variables are on the host, but the communicator is for memory of GPU 0; make a communicator for memory of "
      "the host or of the variables' GPU [bad_pipeline]");
  CHECK_THROWS_WITH(make(model.options(), between_gpus({1})(0)()),
                    "the variables are on GPU 0, but the communicator is for memory of GPU 1; make a communicator for "
                    "memory of the host or of the variables' GPU [bad_pipeline]");
  CHECK_THROWS_WITH(
      distributed_replicated(between_threads(1)(0)(), between_threads(1)(0)(), model.variables(), nothing,
                             model.options()),
      "distributed_replicated: the variables are on GPU 0, but the communicator of this machine's ranks is for memory "
      "of the host; make the communicator for the variables' device [bad_pipeline]");
  CHECK_THROWS_WITH(
      serve_parameters({between_threads(2)(0)()}, 0, 1, model.variables(), nothing, model.options()),
      "serve_parameters: the variables are on GPU 0, but a worker's communicator is for memory of the host; make the "
      "communicators for the variables' device [bad_pipeline]");
  CHECK_THROWS_WITH(asynchronous({between_gpus({0})(0)(), between_threads(2)(1)()}, model.variables(), model.options()),
                    "asynchronous: the communicators of two servers are for memory of GPU 0 and of the host; make "
                    "those of all servers for the same device [bad_pipeline]");
}

TEST_CASE("a step is refused while its stream captures") {
  set_fake_gpus(1);
  for (const std::string& thrown :
       on_gpus(Mode::replicated, 1, Owners::on_gpus, DType::float32, [](GpuModel&model, DataParallel&training) {
         set_capturing(model.stream(), true);
         std::string what;
         try {
           training.ready(0);
         } catch (const Error& error) {
           what = error.what();
         }
         set_capturing(model.stream(), false);
         expect(what.find("the step of a training") != std::string::npos, what.c_str());
         expect(model.step(training, gradients(0, 0, DType::float32), 1), "not finite");  // nothing was ready
       }))
    CHECK(thrown == "");
}

TEST_CASE("what an optimizer gave its stream before it threw is done before the training's memory is gone") {
  const Lazily lazily;
  set_fake_gpus(1);
  GpuModel model(0, DType::float32);
  const auto throws = [apply = model.apply()](size_t variable, std::span<float> value, std::span<const float> by) {
    apply(variable, value, by);
    throw std::runtime_error("too steep");
  };
  auto training = replicated(between_gpus({0})(0)(), model.variables(), throws, model.options());
  CHECK_THROWS_WITH(model.step(*training, gradients(0, 0, DType::float32), 1), "too steep");
  training.reset();
  CHECK(cudaStreamSynchronize(model.stream()) == cudaSuccess);  // memory that is gone would end the program
}

TEST_CASE("a training begins with the values that the stream has still to write") {
  const Lazily lazily;
  set_fake_gpus(2);
  const auto write_zeros = [](const GpuModel& model) {
    for (const Variable& variable : model.variables())
      require(cudaMemsetAsync(variable.value.data(), 0, variable.value.size_bytes(), model.stream()));
  };
  const auto expect_zeros = [](const GpuModel& model) {
    for (const auto& of_variable : model.values())
      expect(std::ranges::count(of_variable, 0.f) == std::ssize(of_variable), "other values");
  };
  for (const Mode mode : modes) {
    Communicators communicators(mode, 2, [](const std::vector<int>& members, bool) { return between_gpus(members); });
    CHECK(side_by_side(2, [&](int rank) {
            const Communicators::Part part = communicators.part(rank);
            GpuModel model(rank, DType::float32);
            if (rank == 0) write_zeros(model);
            const auto training = part.training(model.variables(), model.apply(), model.options());
            expect_zeros(model);
          }) == std::vector<std::string>(2));
  }
  Served served;
  Values at_server;
  CHECK(with_server(
            served, at_server, [&](GpuModel& model, DataParallel&) { expect_zeros(model); }, write_zeros) ==
        std::vector<std::string>(2));
}

TEST_CASE("wait() returns when the values are written, whoever waits for the streams") {
  const Lazily lazily;
  set_fake_gpus(2);
  const auto train = [](GpuModel& model, DataParallel& training) {
    for (int step = 1; step < 4; step++) {
      expect(model.step(training, tens(step), 1), "not finite");
      training.wait();
      const Values now = values_now(model);
      expect(now == model.values(), "values that were not written yet");
    }
  };
  for (const Owners owners : {Owners::on_gpus, Owners::on_host})
    for (const Mode mode : modes)
      for (const std::string& thrown : on_gpus(mode, 2, owners, DType::float32, train)) CHECK(thrown == "");
  Served served;
  Values at_server;
  CHECK(with_server(served, at_server, train) == std::vector<std::string>(2));
  CHECK(served.updates == 3);
}

TEST_CASE("asynchronous: a worker is sent the values after its own update, not after that of another worker") {
  const Lazily lazily;
  set_fake_gpus(3);
  std::promise<void> first_has_stepped, second_has_values;
  const Invite pairs[] = {between_gpus({2, 0}), between_gpus({2, 1})};
  const auto end_of = [&](int worker, int place) { return Invite(pairs[worker])(place)(); };
  CHECK(side_by_side(3, [&](int rank) {
          GpuModel model(rank, DType::float32);
          if (rank == 2) {
            serve_parameters({end_of(0, 0), end_of(1, 0)}, 0, 1, model.variables(), model.apply(), model.options());
            return;
          }
          const auto training = asynchronous({end_of(rank, 1)}, model.variables(), model.options());
          if (rank == 1) first_has_stepped.get_future().wait();
          expect(model.step(*training, tens(1), 1), "not finite");
          if (rank == 0) {
            first_has_stepped.set_value();
            second_has_values.get_future().wait();
          }
          const float less = first_values(2)[1][0] - model.values()[1][0];
          if (rank == 1) second_has_values.set_value();
          expect(less == static_cast<float>(rank + 1), "other values");
        }) == std::vector<std::string>(3));
}

TEST_CASE("a step changes the values after the work of the trainer's stream that reads them") {
  const Lazily lazily;
  set_fake_gpus(2);
  for (const Mode mode : modes)
    CHECK(on_gpus(mode, 2, Owners::on_gpus, DType::float32, [](GpuModel& model, DataParallel& training) {
            const auto variables = model.variables();
            const Values before = model.values();
            const Gradients now = tens(1);
            for (size_t v = 0; v < sizes.size(); v++) {
              require(cudaMemcpyAsync(variables[v].gradient.data, now[v].data(), now[v].size(), cudaMemcpyHostToDevice,
                                      model.stream()));
              training.ready(v);
            }
            std::deque<DeviceBuffer> read;
            for (const Variable& variable : variables) {
              const size_t bytes = variable.value.size_bytes();
              require(cudaMemcpyAsync(read.emplace_back(bytes).data(), variable.value.data(), bytes,
                                      cudaMemcpyDeviceToDevice, model.stream()));
            }
            expect(training.step(), "not finite");
            training.wait();
            expect(model.values() != before, "the same values");
            for (size_t v = 0; v < sizes.size(); v++) {
              std::vector<float> had(sizes[v]);
              require(cudaMemcpy(had.data(), read[v].data(), read[v].size(), cudaMemcpyDeviceToHost));
              expect(had == before[v], "new values");
            }
          }) == std::vector<std::string>(2));
}

TEST_CASE("asynchronous: a server applies whole gradients or none, whatever call of NCCL fails") {
  set_fake_gpus(2);
  SyscallHook& nccl = hook_named("nccl");
  for (int64_t n = 1; n <= 60; n++) {
    INFO("call " << n);
    Served served;
    Values at_server;
    nccl.fail_nth_call(n);
    with_server(served, at_server, [](GpuModel& model, DataParallel& training) {
      for (int step = 1; step < 4; step++) expect(model.step(training, tens(step), 1), "not finite");
    });
    nccl.fail_nth_call(0);
    float less = 0;
    for (uint64_t update = 1; update <= served.updates; update++) less += static_cast<float>(update);
    const Values first = first_values(1);
    for (size_t v = 0; v < at_server.size(); v++)  // none if the server has not begun
      for (size_t i = 0; i < at_server[v].size(); i++) CHECK(at_server[v][i] == first[v][i] - less);
  }
}

TEST_CASE("a profiler is told when buckets are reduced, and of steps") {
  set_fake_gpus(2);
  CHECK(on_gpus(Mode::replicated, 2, Owners::on_gpus, DType::float32, [](GpuModel& model, DataParallel& training) {
          expect(model.step(training, gradients(model.rank(), 0, DType::float32), 1), "not finite");
        }) == std::vector<std::string>(2));
  for (const char* range : {"feedline reduce", "feedline step"}) CHECK(trace_ranges().count(range) == 1);
}
