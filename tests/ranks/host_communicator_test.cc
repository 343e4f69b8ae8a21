// Ranks that are threads.
#include <functional>

#include "ranks/communicator_conformance.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

namespace {

// Runs `body` on each rank, in a thread of its own. `body` must not throw.
void on_ranks(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& body) {
  auto ends = communicators_between_threads(ranks);
  for (const std::string& thrown :
       side_by_side(ranks, [&](int rank) { body(std::move(ends[static_cast<size_t>(rank)])); }))
    CHECK(thrown == "");
}

}  // namespace

TEST_CASE("threads: a communicator does what all do") {
  const int ranks = GENERATE(1, 2, 3, 4, 8);
  on_ranks(ranks, [](std::unique_ptr<Communicator> c) { conformance(*c); });
  SUCCEED();
}

TEST_CASE("threads: what is wrong on one rank ends all of them, and says where") {
  on_ranks(4, [](std::unique_ptr<Communicator> c) { calls_differently(*c); });
  on_ranks(4, [](std::unique_ptr<Communicator> c) { sends_what_nobody_wants(*c); });
  on_ranks(4, [](std::unique_ptr<Communicator> c) { aborts(*c); });
  on_ranks(4, [](std::unique_ptr<Communicator> c) { leaves(std::move(c)); });
  SUCCEED();
}

TEST_CASE("threads: a rank that leaves in peace takes nothing from a call that it has finished") {
  for (int round = 0; round < 200; round++) on_ranks(3, [](std::unique_ptr<Communicator> c) { broadcasts(*c); });
  SUCCEED();
}
