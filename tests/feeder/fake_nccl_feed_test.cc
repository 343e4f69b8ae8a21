// What only fake GPUs can show of rows that travel between GPUs: what each failure leads to, and that everything is
// given back.
#include <cuda_runtime_api.h>

#include "base/syscall_hooks.h"
#include "device_feed.h"
#include "feedline/nccl_communicator.h"
#include "support/catch.h"
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#include "support/given_back.h"
#include "support/log_lines.h"
#include "support/ranks.h"
#include "support/trace_ranges.h"

using namespace feedline;
using namespace feedline::test;

namespace {

constexpr int ranks = 3;

// Feeds the first batches of an epoch on each rank. Returns what each rank threw (its message), or "".
std::vector<std::string> feeds(const Pipeline& pipeline, const std::vector<std::vector<std::string>>& wanted) {
  auto ends = communicators_between_threads(ranks), controls = communicators_between_threads(ranks);
  return side_by_side(ranks, [&](int rank) {
    Consumer consumer(cuda(rank));
    Options options = of_devices({cuda(rank)});
    options.communicator = std::move(ends[static_cast<size_t>(rank)]);
    options.gpu_communicator = nccl_communicator(std::move(controls[static_cast<size_t>(rank)]), cuda(rank),
                                                 {.drain = std::chrono::milliseconds(30)});
    Feeder feeder(pipeline, std::move(options));
    for (const std::string& text : wanted[static_cast<size_t>(rank)]) {
      Batch batch = feeder.next(0, consumer.stream());
      if ((batch ? consumer.text(batch) : "end") == text) continue;
      feeder.next(0, consumer.stream());  // throws if the batch before it did not arrive whole
      throw std::logic_error("another batch");
    }
  });
}

}  // namespace

TEST_CASE("whatever call of NCCL or CUDA fails on one rank, all ranks end, and lose no batch before the missing one") {
  const LogLines unseen;
  set_fake_gpus(ranks);
  const Data data({60});
  const std::string mode = GENERATE(as<std::string>(), "REPLICATE", "SCATTER");
  const Pipeline pipeline = data.pipeline(outputs + batch_text(21, "DROP")).with("distribute.mode", mode);
  std::vector<std::vector<std::string>> wanted;  // the batches of each rank
  for (int rank = 0; rank < ranks; rank++) {
    wanted.push_back(mode == "SCATTER" ? split(pipeline, rank, ranks, 1)[0] : split(pipeline, 0, 1, 1)[0]);
    wanted.back().resize(wanted.back().size() / 2);
  }
  for (const std::string& thrown : feeds(pipeline, wanted)) CHECK(thrown == "");
  for (SyscallHook* hook : SyscallHook::all()) {
    const std::string name = hook->name();
    if (name.find("cuda") != 0 && name != "nccl") continue;
    const FakeCudaState before = fake_cuda_state();
    for (int64_t n = 1; n <= 150; n += n < 10 ? 1 : 9) {  // has a bound, because a call that polls has no last one
      INFO(name << ", call " << n);
      hook->fail_nth_call(n);
      const std::vector<std::string> thrown = feeds(pipeline, wanted);
      const bool came = !hook->pending();
      hook->fail_nth_call(0);
      for (const std::string& what : thrown) CHECK(what != "another batch");
      REQUIRE(fake_comms() == 0);
      if (!came) break;
    }
    INFO(name);
    // A feeder that cannot select a GPU any more frees nothing there. A failed communicator keeps the memory that it
    // reads.
    if (name != "cudaSetDevice" && name != "cudaThreadExchangeStreamCaptureMode")
      CHECK(all_is_given_back(before, true));
  }
}

TEST_CASE("a long wait for a rank that does not call next() is logged") {
  set_fake_gpus(2);
  const LogLines log;
  const Data data({40});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(8, "DROP")).with("distribute.mode", "REPLICATE");
  auto ends = communicators_between_threads(2), controls = communicators_between_threads(2);
  CHECK(side_by_side(2, [&](int rank) {
          Consumer consumer(cuda(rank));
          Options options = of_devices({cuda(rank)});
          options.communicator = std::move(ends[static_cast<size_t>(rank)]);
          options.gpu_communicator = nccl_communicator(std::move(controls[static_cast<size_t>(rank)]), cuda(rank));
          Feeder feeder(pipeline, std::move(options));
          if (rank == 1 && !log.wait_for("next() has waited 10 s for other ranks to call next() for the same step"))
            throw std::runtime_error("nothing was said");
          if (!feeder.next(0, consumer.stream())) throw std::runtime_error("no batch");
        }) == std::vector<std::string>(2));
}

TEST_CASE("a profiler is told what each stage does") {
  set_fake_gpus(ranks);
  const Data data({60});
  const Pipeline pipeline = data.pipeline(outputs + batch_text(21, "DROP")).with("distribute.mode", "REPLICATE");
  std::vector<std::string> wanted = split(pipeline, 0, 1, 1)[0];
  wanted.resize(wanted.size() / 2);
  CHECK(feeds(pipeline, {wanted, wanted, wanted}) == std::vector<std::string>(ranks));
  const std::set<std::string> told = trace_ranges();
  for (const char* range : {"read", "parse", "unpack", "assemble", "transfer", "upload", "arrive"})
    CHECK(told.count(std::string("feedline ") + range) == 1);
}
