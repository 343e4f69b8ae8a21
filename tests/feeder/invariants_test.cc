// A plan with wrong bounds: every check before a write to memory must end the feed with an error, and no byte may be
// written past the end of its memory.
#include <cerrno>
#include <fstream>
#include <random>

#include "base/invariant.h"
#include "data.h"
#include "flowgraph/batch/batch_writer.h"
#include "flowgraph/chunk/file_inflater.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/feed/graph.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/plan/reader_memory.h"
#include "support/catch.h"
#include "support/npy.h"

using namespace feedline;
using namespace feedline::test;
using Catch::Contains;
using Catch::StartsWith;

namespace {

// Runs the feed of a plan. Returns the error with which it ends after some batches.
std::string end_of(const flow::Plan& plan) {
  flow::Graph graph(plan, {.copied_to = {host()}, .io = {}, .start = {}, .deliver_before_error = false});
  try {
    for (int step = 0; step < 100; step++) {
      Batch batch;
      if (graph.delivery().next(0, std::nullopt, batch) != flow::Delivery::Outcome::batch)
        return "the end of the epoch";
    }
  } catch (const Error& error) {
    return std::string(name(error.category())) + ": " + error.message();
  }
  return "a hundred steps";
}

flow::PipelineSpec spec_of(const Data& data, const std::string& more) { return flow::validate(data.pipeline(more)); }

}  // namespace

TEST_CASE("a read that is larger than its slot is not made") {
  for (const Compression compression : {Compression::none, Compression::gzip}) {
    const Data data({4000}, compression);
    const flow::PipelineSpec spec = spec_of(data, "batch { global_batch_size: 10 }");
    flow::Plan plan(spec, flow::count_data(spec, 1, {}), {}, 1);
    CHECK(end_of(plan) == "a hundred steps");
    plan.memory.slot_data_bytes = 8192;
    CHECK_THAT(end_of(plan),
               StartsWith("internal_error: ") && Contains("a read of ") && Contains("for a slot of 8192"));
  }
}

TEST_CASE("a step that needs more chunks than there are slots ends the feed; it does not wait for ever") {
  const Data data({1000, 1000, 1000, 1000, 1000, 1000});
  const flow::PipelineSpec spec =
      spec_of(data, "interleave { cycle_length: 6 block_length: 1 } batch { global_batch_size: 60 }");
  flow::Plan plan(spec, flow::count_data(spec, 1, {}), {}, 1);
  CHECK(plan.memory.step_chunks >= 6);
  CHECK(end_of(plan) == "a hundred steps");
  plan.memory.slots = plan.memory.slots_of_page_cache = 4;
  CHECK_THAT(end_of(plan), StartsWith("internal_error: ") && Contains("needs more chunks than"));
}

TEST_CASE("values that exceed their tensor are not written") {
  const Data data({500});
  const flow::PipelineSpec spec =
      spec_of(data,
              "feature { name: 'v' dtype: INT64 kind: VARIABLE } feature { name: 't' dtype: BYTES kind: VARIABLE } "
              "feature { name: 'p' dtype: INT64 kind: FIXED_SEQUENCE } batch { global_batch_size: 10 }");
  flow::Plan plan(spec, flow::count_data(spec, 1, {}), {}, 1);
  CHECK(end_of(plan) == "the end of the epoch");
  for (const std::string tensor : {"v.values", "v.row_splits", "t.bytes", "t.offsets", "p"}) {
    INFO(tensor);
    const auto at = std::find_if(plan.memory.tensors.begin(), plan.memory.tensors.end(),
                                 [&](const auto& t) { return t.name == tensor; });
    REQUIRE(at != plan.memory.tensors.end());
    const uint64_t capacity = std::exchange(at->capacity, 16);
    CHECK_THAT(end_of(plan),
               StartsWith("internal_error: ") && Contains("into tensor '" + tensor + "', which has room for 16"));
    at->capacity = capacity;
  }
  plan.replica_batch = 9;
  CHECK_THAT(end_of(plan),
             StartsWith("internal_error: ") && Contains("a batch has 10 rows, but its buffer has room for 9 rows"));
}

TEST_CASE("a failed read ends the chunk that needs its bytes, and no chunk before it") {
  const TempDir dir;
  std::mt19937 random(1);
  std::string noise(500'000, '\0');  // does not compress, so it takes several inputs
  for (char& byte : noise) byte = static_cast<char>(random());
  write_records(dir.file("part"), {noise}, Compression::gzip);
  const flow::PipelineSpec spec = flow::validate(parse_pipeline(
      "source { files: 'part' record_type: RAW } feature { name: 'record' dtype: BYTES } " + batch_of(1, "DROP"),
      dir.path()));
  const flow::Plan plan(spec, flow::count_data(spec, 1, {}), {}, 1);
  std::vector<std::byte> memory(flow::inflater_memory_bytes), slot(300'000);
  std::vector<flow::FileInflater::Input*> asked;
  std::vector<flow::ChunkRef> done;
  flow::FileInflater lane(plan, memory,
                          {.read = [&](uint32_t, auto& input) { asked.push_back(&input); },
                           .done = [&](const auto& chunk) { done.push_back(chunk); },
                           .idle = [](auto*) {}});
  const auto inflate = [&](uint64_t offset, uint64_t length) {
    const auto chunk = std::make_shared<flow::Chunk>(0, slot, std::span<std::byte>());
    chunk->ticket.extents = {{.file = 0, .offset = offset, .length = length, .rows = 1}};
    chunk->extents = {slot.data()};
    if (lane.add(chunk)) lane.run();
  };
  const auto arrive = [&](flow::FileInflater::Input& input, int error) {
    std::ifstream file(dir.file("part"), std::ios::binary);
    file.seekg(static_cast<std::streamoff>(input.offset));
    file.read(reinterpret_cast<char*>(input.buffer), static_cast<std::streamsize>(input.length));
    if (lane.arrived(input, error)) lane.run();
  };
  inflate(0, 1000);
  REQUIRE(asked.size() == 2);
  arrive(*asked[1], EIO);
  arrive(*asked[0], 0);
  REQUIRE(done.size() == 1);
  CHECK_FALSE(done[0]->failed);
  inflate(1000, 300'000);
  REQUIRE(done.size() == 2);
  REQUIRE(done[1]->failed);
  CHECK(done[1]->failed->category() == Category::io_error);
  CHECK(done[1]->failed->place().offset > 100'000);
}

TEST_CASE("one replica may be many ends of epochs behind another") {
  const Data data({10});
  const std::string more = "batch { global_batch_size: 10 } parallelism { threads: 1 host_prefetch: 100 } ";
  for (const std::string limit : {"", "memory { limit: '2MiB' }"}) {
    Feeder feeder(data.pipeline(more + limit), replicas(2));
    for (int round = 0; round < 3; round++)
      for (int replica = 0; replica < 2; replica++)
        for (int epoch = 0; epoch < 50; epoch++) {
          CHECK(feeder.next(replica));
          CHECK_FALSE(feeder.next(replica));
        }
  }
}
