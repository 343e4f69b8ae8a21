// Ranks with a GPU each, in threads of one process. The GPUs are real or simulated (support/fake_nccl.h).
#include "feedline/nccl_communicator.h"

#include <functional>
#include <future>

#include "ranks/communicator_conformance.h"
#include "ranks/staged_communicator.h"
#include "support/catch.h"
#include "support/launch.h"
#include "support/ranks.h"
#include "support/skip.h"
#include "support/tcp.h"

using namespace feedline;
using namespace feedline::test;

namespace {

// What a rank does with its communicator; on_gpus() runs it in a thread for each rank. It must not throw.
using Body = std::function<void(std::unique_ptr<Communicator>)>;
void on_gpus(int ranks, const std::function<std::unique_ptr<Communicator>(int rank)>& control, const Body& body) {
  for (const std::string& thrown : side_by_side(ranks, [&](int rank) {
         auto c = nccl_communicator(control(rank), cuda(rank));
         body(std::make_unique<StagedCommunicator>(std::move(c), cuda(rank)));
       }))
    CHECK(thrown == "");
}
void on_gpus(int ranks, const Body& body) {
  auto ends = communicators_between_threads(ranks);
  on_gpus(
      ranks, [&](int rank) { return std::move(ends[static_cast<size_t>(rank)]); }, body);
}

// Returns true, and skips the case, if there are fewer GPUs than `ranks`.
bool lacks(int ranks) {
  const Gpus gpus = visible_gpus();
  if (gpus.count >= ranks) return false;
  skip(gpus.count == 0 ? gpus.why : fmt::format("{} GPUs are wanted, there are {}", ranks, gpus.count));
  return true;
}

}  // namespace

TEST_CASE("GPUs: a communicator does what all do") {
  if (lacks(1)) return;
  for (const int ranks : {1, 2, 3, 4, 8})
    if (ranks <= visible_gpus().count) on_gpus(ranks, [](std::unique_ptr<Communicator> c) { conformance(*c); });
}

TEST_CASE("GPUs: NCCL's id and all else come over TCP, where ranks meet at a port or by an exchange") {
  if (lacks(1)) return;
  const bool told = GENERATE(false, true);
  for (const int ranks : {1, 4}) {
    if (ranks > visible_gpus().count) continue;
    const int port = free_port();
    const auto exchanges = exchanges_between_threads(ranks);
    const auto control = [&](int rank) {
      return told ? tcp_communicator({.rank = rank, .world_size = ranks}, exchanges[static_cast<size_t>(rank)])
                  : tcp_communicator(tcp_options(rank, ranks, port));
    };
    on_gpus(ranks, control, [](std::unique_ptr<Communicator> c) { conformance(*c); });
  }
}

TEST_CASE("GPUs: calls that were announced wait for no other rank, and must be made") {
  if (lacks(2)) return;
  constexpr int64_t elements = 1024;
  std::promise<void> enqueued;
  auto ends = communicators_between_threads(2);
  const auto thrown = side_by_side(2, [&](int rank) {
    require(cudaSetDevice(rank));
    const DeviceStream own;
    cudaStream_t const stream = own.get();
    std::vector<int32_t> host(elements, rank + 1);
    const DeviceBuffer buffer(elements * sizeof(int32_t));
    const auto c = nccl_communicator(std::move(ends[static_cast<size_t>(rank)]), cuda(rank));
    const TensorView data{buffer.data(), DType::int32, {elements}};
    const std::vector<Communicator::AllReduce> calls = {
        {data, Reduction::sum}, {data, Reduction::sum}, {data, Reduction::max}};
    require(cudaMemcpyAsync(buffer.data(), host.data(), buffer.size(), cudaMemcpyHostToDevice, stream));
    c->all_reduce(data, Reduction::max, Stream::cuda(stream));  // makes NCCL allocate what it needs
    c->announce(calls);
    if (rank == 1) {
      const auto made = enqueued.get_future().wait_for(std::chrono::minutes(1));
      expect(made == std::future_status::ready, "rank 0 has not made its calls");
    }
    for (const auto& [of, how] : calls) c->all_reduce(of, how, Stream::cuda(stream));
    if (rank == 0) enqueued.set_value();
    require(cudaMemcpyAsync(host.data(), buffer.data(), buffer.size(), cudaMemcpyDeviceToHost, stream));
    require(cudaStreamSynchronize(stream));
    expect(host == std::vector<int32_t>(elements, 8), "another sum");

    c->announce(calls);
    c->all_reduce(data, Reduction::sum, Stream::cuda(stream));
    c->all_reduce(data, rank == 0 ? Reduction::sum : Reduction::min, Stream::cuda(stream));
    c->all_reduce(data, Reduction::max, Stream::cuda(stream));
    c->barrier();
  });
  for (const std::string& what : thrown)
    CHECK(what.find("all_reduce(sum) of 4096 bytes of INT32 was announced, but all_reduce(min)") != std::string::npos);
  float numbers[4] = {};
  const Communicator::AllReduce one{{numbers, DType::float32, {4}}, Reduction::sum};
  on_gpus(2, [&](std::unique_ptr<Communicator> c) {
    const std::vector<Communicator::AllReduce> calls(static_cast<size_t>(c->rank()) + 1, one);
    const Error error = error_of([&] { c->announce(calls); });
    expect(error.message().find("rank 1 calls announce of 2 calls") != std::string::npos, error.message());
  });
  on_gpus(2, [&](std::unique_ptr<Communicator> c) {
    c->announce({&one, 1});
    if (c->rank() == 0) return;  // and does not make the call
    const Error error = error_of([&] {
      float mine[4] = {};
      c->all_reduce({mine, DType::float32, {4}}, Reduction::sum, Stream::host);
      c->barrier();
    });
    expect(error.message().find("the rank has destroyed its communicator before it made the calls that it announced") !=
               std::string::npos,
           error.message());
  });
}

TEST_CASE("GPUs: what is wrong on one rank ends all of them, and says where") {
  if (lacks(4)) return;
  on_gpus(4, [](std::unique_ptr<Communicator> c) { calls_differently(*c, 1); });
  on_gpus(4, [](std::unique_ptr<Communicator> c) { sends_what_nobody_wants(*c); });
  on_gpus(4, [](std::unique_ptr<Communicator> c) { aborts(*c, 1); });
  on_gpus(4, [](std::unique_ptr<Communicator> c) { leaves(std::move(c), 1); });
}
