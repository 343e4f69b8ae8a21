// Ranks with a GPU each, in threads of one process. The GPUs are real or simulated (support/fake_nccl.h).
#include "feedline/nccl_communicator.h"

#include <functional>

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

TEST_CASE("GPUs: what is wrong on one rank ends all of them, and says where") {
  if (lacks(4)) return;
  on_gpus(4, [](std::unique_ptr<Communicator> c) { calls_differently(*c, 1); });
  on_gpus(4, [](std::unique_ptr<Communicator> c) { sends_what_nobody_wants(*c); });
  on_gpus(4, [](std::unique_ptr<Communicator> c) { aborts(*c, 1); });
  on_gpus(4, [](std::unique_ptr<Communicator> c) { leaves(std::move(c), 1); });
}
