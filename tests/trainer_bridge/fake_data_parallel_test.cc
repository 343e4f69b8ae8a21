// What only fake GPUs can show of variables on GPUs: what each failure leads to, and that everything is given back.
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
      "options.stream: it is of another device than the variables, or the per-thread default stream, which "
      "several threads cannot share; use another stream of GPU 0 [bad_pipeline]");
  options.stream = Stream::cuda_per_thread;
  CHECK_THROWS_WITH(
      make(options, between_threads(1)(0)()),
      "options.stream: it is of another device than the variables, or the per-thread default stream, which "
      "several threads cannot share; use another stream of GPU 0 [bad_pipeline]");
  CHECK_THROWS_WITH(
      make({}, between_gpus({0})(0)()),
      "the variables are on the host, and the communicator is for memory of GPU 0; make one for memory of "
      "the host or of the variables' GPU [bad_pipeline]");
  CHECK_THROWS_WITH(make(model.options(), between_gpus({1})(0)()),
                    "the variables are on GPU 0, and the communicator is for memory of GPU 1; make one for memory of "
                    "the host or of the variables' GPU [bad_pipeline]");
  CHECK_THROWS_WITH(
      distributed_replicated(between_threads(1)(0)(), between_threads(1)(0)(), model.variables(), nothing,
                             model.options()),
      "distributed_replicated: the variables are on GPU 0, and the communicator of this machine's ranks is "
      "for memory of the host; make the communicator for the variables' device [bad_pipeline]");
  CHECK_THROWS_WITH(
      serve_parameters({between_threads(2)(0)()}, 0, 1, model.variables(), nothing, model.options()),
      "serve_parameters: the variables are on GPU 0, and a worker's communicator is for memory of the host; "
      "make the communicators for the variables' device [bad_pipeline]");
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

TEST_CASE("a profiler is told when buckets are reduced, and of steps") {
  set_fake_gpus(2);
  CHECK(on_gpus(Mode::replicated, 2, Owners::on_gpus, DType::float32, [](GpuModel& model, DataParallel& training) {
          expect(model.step(training, gradients(model.rank(), 0, DType::float32), 1), "not finite");
        }) == std::vector<std::string>(2));
  for (const char* range : {"feedline reduce", "feedline step"}) CHECK(trace_ranges().count(range) == 1);
}
