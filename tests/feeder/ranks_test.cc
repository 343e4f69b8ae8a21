// Ranks that have an exchange: either all start or none does, and each rank knows why.
#include "support/ranks.h"

#include <sched.h>

#include <array>
#include <filesystem>
#include <stdexcept>

#include "damage.h"
#include "data.h"
#include "support/catch.h"
#include "support/process.h"

using namespace feedline;
using namespace feedline::test;

namespace {

/// The pipeline and options with which a rank is started.
struct Rank {
  Pipeline pipeline;
  Options options = {};
};

std::vector<Rank> ranks_of(const Pipeline& pipeline, int count) {
  std::vector<Rank> ranks(static_cast<size_t>(count), Rank{pipeline});
  for (int rank = 0; rank < count; rank++) {
    ranks[static_cast<size_t>(rank)].options.rank = rank;
    ranks[static_cast<size_t>(rank)].options.world_size = count;
  }
  return ranks;
}

/// Starts a feeder on each rank. Returns the error of each, or "started".
std::vector<std::string> start(const std::vector<Rank>& ranks) {
  std::vector<std::string> said(ranks.size(), "started");
  const auto thrown = on_ranks(static_cast<int>(ranks.size()), [&](int rank, Exchange exchange) {
    Options options = ranks[static_cast<size_t>(rank)].options;
    options.exchange = std::move(exchange);
    Feeder(ranks[static_cast<size_t>(rank)].pipeline, options);
  });
  for (size_t rank = 0; rank < ranks.size(); rank++)
    if (!thrown[rank].empty()) said[rank] = thrown[rank];
  return said;
}

/// Checks that all ranks gave this text.
void check_all(const std::vector<std::string>& said, const std::string& wanted) {
  for (const std::string& text : said) CHECK(text == wanted);
}

const std::string of_24 = "batch { global_batch_size: 24 last_batch_policy: PARTIAL } ";

}  // namespace

TEST_CASE("ranks with an exchange feed what they feed without one") {
  const Data data({300, 0, 1, 420});
  for (const std::string& order : {std::string(), std::string("shuffle { block_size: '16KiB' buffer_size: 300 } "),
                                   std::string("filter: 'mod(id, 3) > 0' shuffle { mode: GLOBAL } ")})
    for (const int count : {1, 2, 3, 4}) {
      INFO(order << count);
      const TempDir kept;
      const auto ranks = ranks_of(data.pipeline(order + of_24).with("source.index.dir", kept.path()), count);
      std::vector<std::vector<std::vector<int64_t>>> together(ranks.size()), alone(ranks.size());
      const auto feed = [&](size_t rank, Exchange exchange) {
        Options options = ranks[rank].options;
        options.exchange = std::move(exchange);
        Feeder feeder(ranks[rank].pipeline, options);
        return read_epoch(feeder)[0].ids;
      };
      check_all(on_ranks(count,
                         [&](int rank, Exchange exchange) {
                           const auto mine = static_cast<size_t>(rank);
                           together[mine] = feed(mine, std::move(exchange));
                         }),
                "");
      for (size_t rank = 0; rank < ranks.size(); rank++) alone[rank] = feed(rank, {});
      CHECK(together == alone);
    }
}

TEST_CASE("a rank that was given something else is told on all ranks") {
  const Data data({300, 420});
  const Pipeline pipeline = data.pipeline(
      "shuffle { buffer_size: 300 } seed: 5 output { name: 'x' dtype: FLOAT32 "
      "feature: 'id' normalize { mean: 1 std: 2 } } " +
      of_24);
  check_all(start(ranks_of(pipeline, 3)), "started");
  const std::string differs = "rank 2 differs from rank 0: ";
  for (const auto& [path, value, what] : std::vector<std::array<std::string, 3>>{
           {"seed", "7", "seed: 7, not 5"},
           {"shuffle.seed", "5", "shuffle.seed: 5, but not set there"},
           {"shuffle.buffer_size", "301", "shuffle.buffer_size: 301, not 300"},
           {"shuffle.mode", "GLOBAL", ""},
           {"batch.global_batch_size", "48", "batch.global_batch_size: 48, not 24"},
           {"batch.last_batch_policy", "DROP", "batch.last_batch_policy: not set, but PARTIAL there"},
           {"epoch.steps", "3", "epoch: { steps: 3 }, but not set there"},
           {"filter", "id > 3", "filter: \"id > 3\", but not set there"},
           {"errors.on_error", "SKIP_RECORD", "errors: { on_error: SKIP_RECORD }, but not set there"},
           {"source.range", "0:100", "source[0].range: \"0:100\", but not set there"},
           {"source.index.stride", "1KiB", "source[0].index: { stride: \"1KiB\" }, but not set there"},
           {"output.x.dtype", "FLOAT16", "output[0].dtype: FLOAT16, not FLOAT32"},
           {"output.x.normalize.std", "3", "output[0].normalize.std[0]: 3, not 2"}}) {
    INFO(path);
    std::vector<Rank> ranks = ranks_of(pipeline, 3);
    ranks[2].pipeline = pipeline.with(path, value);
    const auto said = start(ranks);
    if (what.empty()) {  // validation refuses it on that rank
      CHECK(said[0].find("rank 2: shuffle.buffer_size: it has no effect with mode GLOBAL") == 0);
      CHECK(said[1] == said[0]);
    } else {
      check_all(said, differs + what + " [bad_pipeline]");
    }
  }
  std::vector<Rank> ranks = ranks_of(pipeline, 3);
  ranks[2].options.devices = {host(), host()};
  check_all(start(ranks), differs + "2 replicas, not 1 [bad_pipeline]");
  ranks = ranks_of(pipeline, 3);
  ranks[2].options.epoch = 4;
  check_all(start(ranks), differs + "epoch 4, not 0 [bad_pipeline]");
  ranks = ranks_of(pipeline, 4);
  ranks[0].pipeline = pipeline.with("seed", "6");
  ranks[3].pipeline = pipeline.with("batch.global_batch_size", "48");
  check_all(start(ranks),
            "ranks 1, 2 differ from rank 0: seed: 5, not 6, and "
            "rank 3 differs from rank 0: batch.global_batch_size: 48, not 24; seed: 5, not 6 [bad_pipeline]");
}

TEST_CASE("what is a machine's own may differ") {
  const Data data({300, 420});
  std::vector<Rank> ranks = ranks_of(data.pipeline(of_24), 3);
  ranks[1].pipeline = ranks[1]
                          .pipeline.with("source.index.dir", data.dir().file("indexes"))
                          .with("parallelism.threads", "1")
                          .with("parallelism.cpu_set", std::to_string(sched_getcpu()))
                          .with("memory.limit", "50MiB")
                          .with("source.files", data.dir().file("part-00[01].*"));
  ranks[1].options.io.backend = BackendKind::pread;
  ranks[2].options.threads = 1;
  ranks[2].options.devices = {host(7)};
  check_all(start(ranks), "started");
}

TEST_CASE("a number, or a number of ranks, that is not the exchange's is told on all ranks") {
  const Data data({30});
  std::vector<Rank> ranks = ranks_of(data.pipeline(of_24), 3);
  ranks[1].options.rank = 2;
  check_all(start(ranks),
            "exchange: the function returned 3 strings, and the string for rank 1 is from rank 2 of 3; give all ranks "
            "the same world size, and return the strings in the order of the ranks [bad_pipeline]");
  ranks = ranks_of(data.pipeline(of_24), 3);
  ranks[2].options.world_size = 4;
  check_all(start(ranks),
            "exchange: the function returned 3 strings, and the string for rank 2 is from rank 2 of 4; give all ranks "
            "the same world size, and return the strings in the order of the ranks [bad_pipeline]");
  ranks = ranks_of(data.pipeline(of_24), 3);
  ranks[2].options.rank = 3;
  const auto said = start(ranks);
  CHECK(said[0].find("the string for rank 2 is from rank 3 of 3") != std::string::npos);
  CHECK(said[2].find("options.rank: the rank is 3, and options.world_size is 3") == 0);
}

TEST_CASE("an exchange that breaks its contract is reported") {
  const Data data({30});
  const auto said = [&](Exchange exchange) {
    Options options;
    options.exchange = std::move(exchange);
    try {
      Feeder(data.pipeline(of_24), options);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("started");
  };
  using Strings = std::vector<std::string>;
  CHECK(said([](std::string_view mine) { return Strings{std::string(mine)}; }) == "started");
  CHECK(said([](std::string_view) { return Strings{}; }).find("is not the string that rank") != std::string::npos);
  CHECK(said([](std::string_view) { return Strings{"something else"}; }).find("is not a message of this version") !=
        std::string::npos);
  CHECK(said([](std::string_view mine) {
          return Strings{std::string(mine) + "!"};
        }).find("is not the string that rank") != std::string::npos);
  CHECK(said([](std::string_view mine) {
          return Strings{std::string(mine), std::string(mine)};
        }).find("the function returned 2 strings, and the string for rank 0 is from rank 0 of 1") != std::string::npos);
}

TEST_CASE("ranks with other files are told which") {
  const Data data({30, 40, 50, 60});
  const auto name = [](int file) { return "part-00" + std::to_string(file) + ".tfrecord"; };
  const auto size = [&](const Data& of, size_t file) {
    return std::to_string(std::filesystem::file_size(of.path(file)));
  };
  std::vector<Rank> ranks = ranks_of(data.pipeline(of_24), 3);
  ranks[1].pipeline = ranks[0].pipeline.with("source.exclude", "*-001*");
  check_all(start(ranks), "rank 1 differs from rank 0: 3 files, not 4; the first file that differs: " + name(2) +
                              " of " + size(data, 2) + " bytes, not " + name(1) + " of " + size(data, 1) +
                              " bytes [bad_pipeline]");
  ranks[1].pipeline = ranks[0].pipeline.with("source.exclude", "*-003*");
  check_all(start(ranks), "rank 1 differs from rank 0: 3 files, not 4; the first file that differs: none, not " +
                              name(3) + " of " + size(data, 3) + " bytes [bad_pipeline]");

  const Data longer({30, 40, 51, 60});
  ranks[1].pipeline = longer.pipeline(of_24);
  check_all(start(ranks), "rank 1 differs from rank 0: the first file that differs: " + name(2) + " of " +
                              size(longer, 2) + " bytes, not " + name(2) + " of " + size(data, 2) +
                              " bytes [bad_pipeline]");

  // Files with the same names and sizes: the difference is found if each rank knows the content of its own.
  const Data same({30, 40, 50, 60});
  flip(same.path(2), offset_of(same.path(2), 5) + 12 + 9);
  ranks = ranks_of(data.pipeline(of_24).with("errors.on_error", "SKIP_RECORD"), 3);
  ranks[2].pipeline = same.pipeline(of_24).with("errors.on_error", "SKIP_RECORD");
  for (Rank& rank : ranks) {
    rank.pipeline = rank.pipeline.with("source.index.stride", "16KiB");
    Feeder counted(rank.pipeline, {.rank = 0});
  }
  for (const std::string& text : start(ranks)) {
    INFO(text);
    CHECK(text.find("rank 2 differs from rank 0: the first file that differs: " + name(2) +
                    " with 49 good records (audit ") == 0);
    CHECK(text.find(", not " + name(2) + " with 50 good records (audit ") != std::string::npos);
  }
}

TEST_CASE("a rank that cannot start makes no other wait") {
  const Data data({300, 420});
  std::vector<Rank> ranks = ranks_of(data.pipeline(of_24), 3);
  const auto check = [&](const std::string& why) {
    const auto said = start(ranks);
    INFO(said[0] << "\n" << said[1] << "\n" << said[2]);
    CHECK(said[1].find(why) != std::string::npos);
    CHECK(said[1].find("rank 1") == std::string::npos);
    CHECK(said[0].find("rank 1: ") != std::string::npos);
    CHECK(said[0].find(why) != std::string::npos);
    CHECK(said[2] == said[0]);
  };
  ranks[1].pipeline = ranks[0].pipeline.with("source.files", data.dir().file("missing"));  // found by validation
  check("no file");
  ranks[1].pipeline = ranks[0].pipeline.with("memory.limit", "1KiB");  // found by planning
  check("memory.limit: the feed needs");
  ranks = ranks_of(data.pipeline(of_24), 3);
  ranks[1].options.on_progress = [](uint64_t, uint64_t) { throw std::runtime_error("enough"); };  // found by counting
  check("enough");
  ranks = ranks_of(data.pipeline(of_24), 3);
  for (Rank& rank : ranks) rank.options.epoch = ~uint64_t{0};
  for (const std::string& text : start(ranks))
    CHECK(text.find("rank") == std::string::npos);  // each rank fails for a reason of its own
}

TEST_CASE("an exchange that throws ends that rank's start, and then the others'") {
  const Data data({300, 420});
  const std::vector<Rank> ranks = ranks_of(data.pipeline(of_24), 3);
  int calls = 0;
  for (bool failed = true; failed; calls++) {
    INFO(calls);
    const auto thrown = on_ranks(3, [&](int rank, Exchange exchange) {
      Options options = ranks[static_cast<size_t>(rank)].options;
      options.exchange = [&calls, rank, left = calls, exchange = std::move(exchange)](std::string_view mine) mutable {
        if (rank == 1 && left-- == 0) throw std::runtime_error("the network is gone");
        return exchange(mine);
      };
      Feeder(ranks[static_cast<size_t>(rank)].pipeline, std::move(options));
    });
    failed = !thrown[1].empty();
    CHECK(thrown[1] == (failed ? "the network is gone" : ""));
    for (const size_t rank : {0, 2})
      CHECK_THAT(thrown[rank],
                 failed ? Catch::Matches("rank 1, call .*: the rank has destroyed its communicator, so "
                                         "this call cannot be completed; see the error of that rank \\[stalled\\]")
                        : Catch::Matches(""));
  }
  CHECK(calls > 5);  // the exchange is not called any more once the feeder has been made
}

TEST_CASE("either all feeders are made or none, whatever thread cannot be started") {
  const Data data({90});
  std::vector<Rank> ranks = ranks_of(data.pipeline(batch_of(6, "DROP")), 2);
  ranks[1].options.monitor = "127.0.0.1:0";
  SyscallHook* const hook = find_hook("start thread");
  REQUIRE(hook);
  bool came = true;
  for (int64_t n = 1; came; n++) {
    INFO("thread " << n);
    hook->fail_nth_call(n);
    const std::vector<std::string> said = start(ranks);
    came = !hook->pending();
    hook->fail_nth_call(0);
    CHECK((said[0] == "started") == (said[1] == "started"));
  }
}
