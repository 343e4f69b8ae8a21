// RowCheck, and feedline run --verify-rows.
#include "tool/feeding/row_check.h"

#include "pipelines.h"
#include "support/catch.h"
#include "support/free_port.h"

using namespace feedline;
using namespace feedline::tool;
using namespace feedline::test;

namespace {

const std::string shuffled = "shuffle { mode: BLOCK buffer_size: 500 } ";

uint64_t differing(RowCheck& rows, const Pipeline& fed, uint64_t epochs) {
  Options options;
  options.devices = {host(), host()};
  Feeder feeder(fed, options);
  for (uint64_t epoch = 0; epoch < epochs; epoch++)
    for (bool ended = false; !ended;)
      for (int replica = 0; replica < feeder.replicas(); replica++) {
        const Batch batch = feeder.next(replica);
        ended = !batch;
        if (batch) rows.check(batch);
      }
  return rows.result().differing;
}

}  // namespace

TEST_CASE("rows are those of their records, in any order") {
  for (const std::string& order : {std::string(), shuffled, std::string("window { size: 3 shift: 2 } ")}) {
    INFO(order);
    const Pipeline given = parse_pipeline(order + chess_pipeline("global_batch_size: 64 last_batch_policy: PAD"));
    RowCheck rows(given);
    CHECK(rows.output() == "board");
    CHECK(differing(rows, rows.pipeline(), 2) == 0);
    const uint64_t compared = rows.result().rows;
    CHECK((order.starts_with("window") ? compared >= 6000 : compared == 6000));
    CHECK_FALSE(rows.result().first);
  }
}

TEST_CASE("rows that are not those of their records are counted, and the first is told") {
  const Pipeline given = parse_pipeline(shuffled + chess_pipeline("global_batch_size: 60"));
  RowCheck rows(given);
  // The same records, but each board is another.
  CHECK(differing(rows, rows.pipeline().with("output.board.unpack_bits.bit_offset", "1"), 1) > 2000);
  REQUIRE(rows.result().first);
  CHECK_THAT(*rows.result().first, Catch::Contains("epoch 0, step 0: the row of record ") &&
                                       Catch::Contains(" of source 0 is not the same as when records are fed one"));
}

TEST_CASE("a record that was not there alone is told") {
  const Pipeline given = parse_pipeline(chess_pipeline("global_batch_size: 60"));
  RowCheck rows(given.with("source.range", "0:100"));
  const Pipeline all = rows.pipeline().with("source.range", "");
  CHECK(differing(rows, all, 1) == 2900);
  CHECK_THAT(*rows.result().first, Catch::EndsWith("is missing when records are fed one at a time"));
}

TEST_CASE("run --verify-rows says how many rows it has compared") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", shuffled + chess_pipeline("global_batch_size: 256"));
  const ToolResult as_json = run_tool({"run", pipeline, "--verify-rows", "--json", "--replicas", "2"});
  INFO(as_json.err);
  REQUIRE(as_json.code == 0);
  CHECK(as_json.json().at("verified_rows") == nlohmann::json{{"output", "board"}, {"rows", 2816}, {"differing", 0}});
  const ToolResult in_words = run_tool({"run", pipeline, "--verify-rows"});
  CHECK_THAT(
      in_words.out,
      Catch::Contains("2,816 rows of output 'board' compared with rows that were fed one at a time, 0 rows differ"));
}

TEST_CASE("a rank that cannot feed its records one at a time tells the others why") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 256"));
  const std::string meet = "localhost:" + std::to_string(free_port());
  const std::vector<std::string> first = {"run",          pipeline, "--verify-rows", "--rank", "0",
                                          "--world-size", "2",      "--meet",        meet};
  std::vector<std::string> second = first;
  second[4] = "1";
  second.insert(second.end(), {"--set", "source.files=nothing-*"});
  Tool ranks[] = {Tool(first), Tool(second)};
  for (Tool& rank : ranks) {
    const ToolResult result = rank.wait();
    CHECK(result.code == 1);
    CHECK_THAT(result.err, Catch::Contains("nothing-*"));
  }
}

TEST_CASE("an output that can be compared is needed") {
  const TempDir dir;
  const std::string pipeline =
      dir.write("p.textproto", "source { files: '" + golden("chess/main-*.tfrecord") +
                                   "' } feature { name: 'd' dtype: BYTES } batch { global_batch_size: 8 }");
  const ToolResult refused = run_tool({"run", pipeline, "--verify-rows"});
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err, Catch::Contains("none of the outputs can be compared: --verify-rows needs an output"));
}
