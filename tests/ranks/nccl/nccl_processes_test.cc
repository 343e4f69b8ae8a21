// Ranks that are processes with a GPU each, connected by NCCL. The program nccl_ranks lies beside this one.
#include <algorithm>
#include <filesystem>

#include "support/catch.h"
#include "support/launch.h"
#include "support/no_gpus.h"

using namespace feedline;
using namespace feedline::test;

namespace {

Launched ranks_that(const std::string& what, int ranks) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "nccl_ranks";
  return torchrun(ranks, program.string() + " " + what);
}

}  // namespace

TEST_CASE("GPUs of processes: they do what all do, and a rank that pauses is no failure") {
  if (no_gpus()) return;
  const int ranks = std::min(visible_gpus().count, 4);
  for (const std::string what : {"conformance", "pause"}) {
    const Launched launched = ranks_that(what, ranks);
    INFO(what << "\n" << launched.text);
    CHECK(launched.ok == ranks);
  }
}

TEST_CASE("GPUs of processes: one that is stopped, killed or wrong ends the others") {
  if (visible_gpus().count < 4) return skip("4 GPUs are wanted");
  for (const std::string what : {"stop", "kill", "parts", "leave"}) {
    const Launched launched = ranks_that(what, 4);
    INFO(what << "\n" << launched.text);
    CHECK(launched.ok == (what == "kill" ? 3 : 4));
  }
}
