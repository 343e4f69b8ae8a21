// What only fake GPUs can show of their communicator: what each failure leads to, and that everything is given back.
#include "support/fake_nccl.h"

#include <future>
#include <set>
#include <thread>

#include "base/syscall_hooks.h"
#include "feedline/nccl_communicator.h"
#include "gpu/cuda/cuda_call.h"
#include "ranks/communicator_conformance.h"
#include "support/catch.h"
#include "support/device_buffer.h"
#include "support/fake_cuda.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

namespace {

using Body = std::function<void(Communicator& c, cudaStream_t stream, std::span<std::byte> on_gpu)>;

// Runs `body` on each rank. Returns what each rank threw (its message), or "".
std::vector<std::string> on_ranks(int ranks, const Body& body) {
  auto ends = communicators_between_threads(ranks);
  return side_by_side(ranks, [&](int rank) {
    require(cudaSetDevice(rank));
    const DeviceStream stream;
    const DeviceBuffer buffer(4096);
    const auto c = nccl_communicator(std::move(ends[static_cast<size_t>(rank)]), cuda(rank),
                                     {.drain = std::chrono::milliseconds(30)});
    body(*c, stream.get(), {buffer.bytes(), buffer.size()});
  });
}

// Makes calls of every kind, on both kinds of stream.
void calls(Communicator& c, cudaStream_t stream, std::span<std::byte> on_gpu) {
  const size_t part = on_gpu.size() / 2 / static_cast<size_t>(c.size());
  const std::span all = on_gpu.first(part * static_cast<size_t>(c.size()));
  const int64_t floats = static_cast<int64_t>(part) / 4;
  for (const Stream on : {Stream::cuda(stream), Stream::host}) {
    c.all_gather(all.subspan(static_cast<size_t>(c.rank()) * part, part), all, on);
    c.all_reduce({all.data(), DType::float32, {floats}}, Reduction::sum, on);
    c.reduce_scatter({all.data(), DType::float32, {floats * c.size()}},
                     {on_gpu.data() + on_gpu.size() / 2, DType::float32, {floats}}, Reduction::max, on);
    c.broadcast(all, 0, on);
    const Communicator::Part to{(c.rank() + 1) % c.size(), all.first(16)};
    const Communicator::Part from{(c.rank() + c.size() - 1) % c.size(), all.subspan(16, 16)};
    c.send_receive({&to, 1}, {&from, 1}, on);
    c.barrier();
  }
  require(cudaStreamSynchronize(stream));
}

// Makes the calls. After one that fails, the stream is given nothing more, so that its memory may be freed.
void calls_until_one_fails(Communicator& c, cudaStream_t stream, std::span<std::byte> on_gpu) {
  try {
    calls(c, stream, on_gpu);
  } catch (const Error&) {
    if (fake_nccl_launches_on(stream)) throw std::logic_error("work will be enqueued after a call has failed");
    throw;
  }
}

bool nothing_is_left() {
  const FakeCudaState state = fake_cuda_state();
  return state.streams == 0 && state.events == 0 && state.allocations == 0 && fake_comms() == 0;
}

}  // namespace

TEST_CASE("a communicator of GPUs gives back all it took, and makes no context on other GPUs") {
  set_fake_gpus(3);
  auto ends = communicators_between_threads(2);
  side_by_side(2, [&](int rank) { nccl_communicator(std::move(ends[static_cast<size_t>(rank)]), cuda(rank + 1)); });
  CHECK(fake_cuda_state().contexts == std::set<int>{1, 2});
  for (const std::string& thrown : on_ranks(3, calls)) CHECK(thrown == "");
  CHECK(nothing_is_left());
}

TEST_CASE("a GPU that is not there, or has two ranks, is an error") {
  set_fake_gpus(1);
  const auto make = [](const std::vector<DeviceId>& gpus) {
    auto ends = communicators_between_threads(2);
    return side_by_side(2, [&](int rank) {
      nccl_communicator(std::move(ends[static_cast<size_t>(rank)]), gpus[static_cast<size_t>(rank)]);
    });
  };
  for (const std::string& thrown : make({cuda(0), cuda(1)}))
    CHECK(thrown.find("there is no GPU 1: the number of GPUs that this process sees is 1") != std::string::npos);
  // The other rank may have been ready before the failure; it would be told at its next call.
  const std::vector<std::string> thrown = make({cuda(0), cuda(0)});
  CHECK((thrown[0] + thrown[1]).find("ncclCommGetAsyncError: a simulated error") != std::string::npos);
  CHECK(nothing_is_left());
}

TEST_CASE("streams that wait for a rank go on when it fails") {
  set_fake_gpus(3);
  std::promise<void> gate;
  const auto thrown = on_ranks(3, [&](Communicator& c, cudaStream_t stream, std::span<std::byte> on_gpu) {
    // Rank 1's part of the call waits until the gate opens.
    if (c.rank() == 1) run_on_stream(stream, [&gate] { gate.get_future().wait(); });
    const Error error = error_of([&] {
      c.broadcast(on_gpu, 1, Stream::cuda(stream));
      if (c.rank() == 1) c.abort(Error(Category::bad_image, "no such picture"));
      if (c.rank() != 1) require(cudaStreamSynchronize(stream));
      c.barrier();
    });
    expect(error.message() == "rank 1, call 2: no such picture", error.message());
    if (c.rank() == 1) gate.set_value();
  });
  for (const std::string& what : thrown) CHECK(what == "");
  CHECK(nothing_is_left());
}

TEST_CASE("a call's work comes after that of the call before it, on whatever streams") {
  const Lazily lazily;
  set_fake_gpus(1);
  const auto thrown = on_ranks(1, [](Communicator& c, cudaStream_t first, std::span<std::byte> on_gpu) {
    const DeviceStream second;
    std::string bytes = "a   b   ";
    require(cudaMemcpy(on_gpu.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    c.all_gather(on_gpu.subspan(0, 2), on_gpu.subspan(2, 2), Stream::cuda(first));
    c.all_gather(on_gpu.subspan(4, 2), on_gpu.subspan(6, 2), Stream::cuda(second.get()));
    require(cudaStreamSynchronize(second.get()));
    require(cudaMemcpy(bytes.data(), on_gpu.data(), bytes.size(), cudaMemcpyDeviceToHost));
    expect(bytes == "a a b b ", bytes);
  });
  CHECK(thrown == std::vector<std::string>{""});
}

TEST_CASE("a communicator that was aborted keeps its memory until the streams have used it") {
  set_fake_gpus(1);
  const auto thrown = on_ranks(1, [](Communicator& c, cudaStream_t stream, std::span<std::byte> on_gpu) {
    const TensorView data{on_gpu.data(), DType::float32, {4}};
    c.all_reduce(data, Reduction::sum, Stream::host);  // allocates the memory
    // Holds the stream for 100 ms, or until that memory is freed, which the next call would then use.
    run_on_stream(stream, [allocations = fake_cuda_state().allocations] {
      for (int ms = 0; ms < 100 && fake_cuda_state().allocations == allocations; ms++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    c.all_reduce(data, Reduction::sum, Stream::cuda(stream));
    c.abort(Error(Category::bad_image, "no such picture"));
  });
  CHECK(thrown == std::vector<std::string>{""});
  CHECK(nothing_is_left());
}

TEST_CASE("a call on Stream::host that fails leaves no work behind") {
  const Lazily lazily;
  set_fake_gpus(1);
  require(cudaSetDevice(0));
  const DeviceBuffer buffer(8);
  std::string bytes = "from  to";
  require(cudaMemcpy(buffer.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  {
    const auto c = nccl_communicator(std::move(communicators_between_threads(1)[0]), cuda(0));
    syscall_hook<gpu::EventQueryOp>.fail_nth_call(1);
    CHECK_THROWS_WITH(c->all_gather({buffer.bytes(), 4}, {buffer.bytes() + 4, 4}, Stream::host),
                      Catch::Contains("cudaEventQuery"));
    require(cudaMemcpy(buffer.data(), "fromgone", bytes.size(), cudaMemcpyHostToDevice));
  }
  require(cudaMemcpy(bytes.data(), buffer.data(), bytes.size(), cudaMemcpyDeviceToHost));
  CHECK(bytes == "fromgone");
}

TEST_CASE("whatever call of NCCL or CUDA fails on one rank, all end, and nothing leaks") {
  set_fake_gpus(3);
  for (SyscallHook* hook : SyscallHook::all()) {
    const std::string name = hook->name();
    if (name.find("cuda") != 0 && name != "nccl") continue;
    for (int64_t n = 1; n <= 100; n++) {  // has a bound, because a call that polls has no last one
      INFO(name << ", call " << n);
      hook->fail_nth_call(n);
      const std::vector<std::string> thrown = on_ranks(3, calls_until_one_fails);
      for (const std::string& what : thrown) CHECK(what.find("will be enqueued") == std::string::npos);
      const bool came = !hook->pending();
      hook->fail_nth_call(0);
      if (!came) break;
      // A rank that needed nothing more may not have been told of the failure. All that were told have the same error.
      CHECK(std::set<std::string>(thrown.begin(), thrown.end()).size() <= 2);
      REQUIRE(nothing_is_left());
    }
  }
}

TEST_CASE("a call is refused while its stream captures, and on another GPU's default stream") {
  set_fake_gpus(2);
  for (const std::string& thrown : on_ranks(2, [](Communicator&c, cudaStream_t stream, std::span<std::byte> on_gpu) {
         set_capturing(stream, true);
         const Error captured = error_of([&] { c.broadcast(on_gpu, 0, Stream::cuda(stream)); });
         expect(captured.category() == Category::device_error, captured.what());
         set_capturing(stream, false);
         const Error threads = error_of([&] { c.broadcast(on_gpu, 0, Stream::cuda_per_thread); });
         expect(threads.category() == Category::bad_pipeline, threads.what());
         require(cudaSetDevice(1 - c.rank()));
         const Error other = error_of([&] { c.broadcast(on_gpu, 0, Stream::cuda_legacy); });
         expect(other.category() == Category::bad_pipeline, other.what());
         c.broadcast(on_gpu, 0, Stream::cuda(stream));
       }))
    CHECK(thrown == "");
}
