// feedline inspect --pipeline: the pipelines that it infers.
#include <filesystem>

#include "feedline/records.h"
#include "flowgraph/example_writer.h"
#include "pipelines.h"
#include "support/catch.h"
#include "tool.h"

using namespace feedline;
using namespace feedline::test;
using nlohmann::json;

namespace fs = std::filesystem;

TEST_CASE("every inferred pipeline passes check and feeds all records") {
  std::vector<std::string> files;
  for (const char* name :
       {"chess/main-00000-of-00003.tfrecord", "images/photos_jpeg.tfrecord", "images/digits_png.tfrecord",
        "images/cifar_like.tfrecord", "proto/mixed_batch.tfrecord", "proto/keys_not_utf8.tfrecord",
        "proto/keys.tfrecord", "sequence/basic.tfrecord", "framing/good.tfrecord", "compression/gzip_examples.tfrecord",
        "tabular/penguins.tfrecord"}) {
    files.push_back(golden(name));
  }
  if (fs::exists(FEEDLINE_SHARED_REAL)) {
    for (const auto& entry : fs::directory_iterator(FEEDLINE_SHARED_REAL)) {
      if (entry.path().string().find("tfrecord") != std::string::npos) files.push_back(entry.path().string());
    }
  }
  for (const std::string& file : files) {
    INFO(file);
    const TempDir dir;
    const ToolResult inferred = run_tool({"inspect", "--pipeline", file});
    CHECK(inferred.code == 0);
    INFO(inferred.out);
    const std::string pipeline = dir.write("inferred.textproto", inferred.out);
    const ToolResult check = run_tool({"check", pipeline});
    INFO(check.err);
    CHECK(check.code == 0);
    const ToolResult fed = run_tool({"run", pipeline, "--json", "--set", "batch.last_batch_policy=PARTIAL"});
    INFO(fed.err);
    CHECK(fed.code == 0);
    CHECK(fed.json().at("records") == run_tool({"verify", "--json", file}).json().at("files")[0].at("records"));
  }
}

TEST_CASE("an inferred pipeline for SequenceExamples has their lists, with one shape where the data has one") {
  const std::string text = run_tool({"inspect", "--pipeline", golden("sequence/basic.tfrecord")}).out;
  INFO(text);
  for (const char* line :
       {"  record_type: SEQUENCE_EXAMPLE\n", "feature { name: \"label\" dtype: INT64 }\n",
        "feature { name: \"tags\" dtype: INT64 kind: VARIABLE }",
        "feature { name: \"frames\" dtype: BYTES where: FEATURE_LIST kind: FIXED_SEQUENCE }",
        "feature { name: \"tok\" dtype: INT64 where: FEATURE_LIST kind: RAGGED }",
        "feature { name: \"xy\" dtype: FLOAT32 where: FEATURE_LIST kind: FIXED_SEQUENCE shape: [2] }"})
    CHECK(text.find(line) != std::string::npos);

  // Two steps of one string in every record, and a key that is in both maps.
  const TempDir dir;
  const auto list = [](const std::vector<std::string>& steps) {
    std::string content;
    for (const std::string& step : steps) content += wire::delimited(1, wire::bytes_feature({step}));
    return content;
  };
  const std::string record = wire::delimited(1, wire::entry("x", wire::int64_feature({1}))) +
                             wire::delimited(2, wire::entry("x", list({"abc", "def"})));
  RecordWriter writer(dir.file("two.tfrecord"));
  for (int i = 0; i < 2; i++) writer.write(std::as_bytes(std::span(record)));
  writer.close();
  const std::string both = run_tool({"inspect", "--pipeline", dir.file("two.tfrecord")}).out;
  INFO(both);
  CHECK(both.find("feature { name: \"x of the context\" key: \"x\" dtype: INT64 }\n") != std::string::npos);
  CHECK(both.find("feature { name: \"x\" dtype: BYTES where: FEATURE_LIST shape: [2] length: 3 }\n") !=
        std::string::npos);
  const Dump dump(both);
  CHECK(dump.result.code == 0);
  CHECK(dump.array("x").shape == std::vector<int64_t>{2, 2, 3});
}

TEST_CASE("a record that does not parse lacks no feature, because the inferred pipeline skips it") {
  const TempDir dir;
  const auto file_of = [&](const char* name, const std::string& record) {
    RecordWriter writer(dir.file(name));
    for (const std::string& each : {record, record, std::string("\xff")}) writer.write(std::as_bytes(std::span(each)));
    writer.close();
    return dir.file(name);
  };
  const std::string first = file_of("1.tfrecord", wire::example(wire::entry("id", wire::bytes_feature({"abc"}))));
  const std::string second = file_of("2.tfrecord", wire::example(wire::entry("x", wire::int64_feature({1}))));
  const std::string text = run_tool({"inspect", "--pipeline", first}).out;
  INFO(text);
  CHECK(text.find("feature { name: \"id\" dtype: BYTES length: 3 }\n") != std::string::npos);
  CHECK_THAT(run_tool({"inspect", "--pipeline", first, second}).err, Catch::Contains("belong to different data sets"));
}

TEST_CASE("an inferred pipeline decodes the frames of clips, and bounds how many a record has") {
  const std::string text = run_tool({"inspect", "--pipeline", golden("video/clips.tfrecord")}).out;
  INFO(text);
  CHECK(text.find(
            "feature { name: \"image/encoded\" dtype: BYTES where: FEATURE_LIST kind: FIXED_SEQUENCE max_values: 8 }"
            "  # 4 to 8 steps; 742 to 2,641 bytes; PNG, 32 x 32, 3 channels\n") != std::string::npos);
  CHECK(text.find("  decode_image { max_pixels: 65536 }") != std::string::npos);
  const Dump dump(text);
  CHECK(dump.result.code == 0);
  CHECK(dump.array("image%2Fencoded").shape == std::vector<int64_t>{4, 8, 32, 32, 3});
}

TEST_CASE("an inferred pipeline names shards by a pattern that matches no other file") {
  const std::vector<std::string> shards = {golden("chess/main-00002-of-00003.tfrecord"),
                                           golden("chess/main-00000-of-00003.tfrecord"),
                                           golden("chess/main-00001-of-00003.tfrecord")};
  const auto infer = [](const std::vector<std::string>& files) {
    std::vector<std::string> args = {"inspect", "--pipeline"};
    args.insert(args.end(), files.begin(), files.end());
    return run_tool(args);
  };
  const ToolResult all = infer(shards);
  CHECK(all.code == 0);
  CHECK(all.out.find("  files: \"" + golden("chess/main-*-of-00003.tfrecord") + "\"\n") != std::string::npos);
  // A pattern for two of the three would match the third.
  const ToolResult two = infer({shards[0], shards[1]});
  for (const std::string& shard : {shards[0], shards[1]})
    CHECK(two.out.find("  files: \"" + shard + "\"\n") != std::string::npos);

  const TempDir dir;
  for (const char* name : {"1-a2.tfrecord", "2-a2.tfrecord", "2-a3.tfrecord", "a[1].tfrecord", "a[2].tfrecord"})
    fs::copy_file(shards[0], dir.file(name));
  const ToolResult odd = infer(
      {dir.file("1-a2.tfrecord"), dir.file("2-a2.tfrecord"), dir.file("a[1].tfrecord"), dir.file("a[2].tfrecord")});
  for (const char* name : {"*-a2.tfrecord", "a[1].tfrecord", "a[2].tfrecord"})
    CHECK(odd.out.find("  files: \"" + dir.file(name) + "\"\n") != std::string::npos);
  CHECK(run_tool({"check", dir.write("odd.textproto", odd.out)}).code == 0);
}

TEST_CASE("no pipeline is inferred for two data sets at once") {
  const ToolResult mixed = run_tool(
      {"inspect", "--pipeline", golden("chess/main-00000-of-00003.tfrecord"), golden("images/digits_raw.tfrecord")});
  CHECK(mixed.code == 1);
  CHECK(mixed.out.empty());
  CHECK_THAT(mixed.err, Catch::Contains("the files belong to different data sets: every record of ") &&
                            Catch::Contains("run `feedline inspect --pipeline` for each data set"));

  const TempDir dir;
  std::vector<std::string> arguments = {"inspect", "--pipeline"};
  for (const char* list : {"frames", "words"}) {  // of SequenceExamples with the same context
    const std::string step = wire::delimited(1, wire::int64_feature({1}));
    const std::string record =
        wire::delimited(1, wire::entry("x", wire::int64_feature({1}))) + wire::delimited(2, wire::entry(list, step));
    RecordWriter writer(arguments.emplace_back(dir.file(list)));
    writer.write(std::as_bytes(std::span(record)));
    writer.close();
  }
  const ToolResult lists = run_tool(arguments);
  CHECK(lists.code == 1);
  CHECK_THAT(lists.err, Catch::Contains("has the feature \"feature_lists/frames\" and none has"));
}

TEST_CASE("a damaged file's inferred pipeline skips the damage") {
  const TempDir dir;
  const ToolResult inferred = run_tool({"inspect", "--pipeline", golden("framing/flip_data_first_record2.tfrecord")});
  CHECK(inferred.code == 1);
  const ToolResult nothing = run_tool({"inspect", "--pipeline", dir.file("missing")});
  CHECK(nothing.code == 1);
  CHECK(nothing.out.empty());
  const std::string pipeline = dir.write("inferred.textproto", inferred.out);
  CHECK(run_tool({"run", pipeline, "--json", "--set", "batch.last_batch_policy=PARTIAL"}).json().at("records") == 4);
}

TEST_CASE("an inferred pipeline names no feature as a tensor of another one is named") {
  const TempDir dir;
  const std::string file = dir.file("a.tfrecord");
  {
    RecordWriter writer(file);
    for (int64_t i = 0; i < 4; i++) {
      const std::vector<int64_t> list(static_cast<size_t>(i + 1), i);
      std::string record;
      for (const char* key : {"tok", "tok.values.values"})  // VARIABLE
        record += wire::entry(key, wire::int64_feature(list));
      for (const char* key : {"tok.values", "tok.row_splits", "tok.step_splits", "txt.bytes", "feature_1", "", "@x"})
        record += wire::entry(key, wire::int64_feature({i}));
      record += wire::entry("txt", wire::bytes_feature({std::string(static_cast<size_t>(i), 'x')}));
      record += wire::entry("txt.offsets", wire::bytes_feature({std::string(static_cast<size_t>(i), 'y')}));
      const std::string example = wire::example(record);
      writer.write(std::as_bytes(std::span(example)));
    }
    writer.close();
  }
  const ToolResult inferred = run_tool({"inspect", "--pipeline", file});
  INFO(inferred.out << inferred.err);
  REQUIRE(inferred.code == 0);
  for (const char* kept : {"name: \"tok\" dtype", "name: \"txt\" dtype", "name: \"feature_1\" dtype"})
    CHECK_THAT(inferred.out, Catch::Contains(kept));
  for (const char* renamed : {" key: \"tok.values\" ", " key: \"txt.bytes\" ", " key: \"\" ", " key: \"@x\" "})
    CHECK_THAT(inferred.out, Catch::Contains(renamed));
  const Dump dump(inferred.out, {"--set", "batch.last_batch_policy=PARTIAL"});
  INFO(dump.result.err);
  CHECK(dump.result.code == 0);
  CHECK(dump.array("tok.values").as<int64_t>().size() == 10);

  const std::string csv = dir.write("x.csv", "txt,txt.bytes,n,n.values\na,1,2,3\nbb,4,5,6\n");
  REQUIRE(run_tool({"convert", "csv", csv, "--out", dir.file("converted")}).code == 0);
  const ToolResult check = run_tool({"check", dir.file("converted/pipeline.textproto")});
  INFO(check.err);
  CHECK(check.code == 0);
  CHECK_THAT(read_file(dir.file("converted/pipeline.textproto")), Catch::Contains("name: \"n.values\" dtype"));
}

TEST_CASE("an inferred pipeline names files whose names are not UTF-8, or says that it cannot") {
  const TempDir dir;
  const std::string strange = dir.file("a\xff\xfe.tfrecord"), other = dir.file("a\xc3\x28.tfrecord");
  fs::copy_file(golden("chess/main-00000-of-00003.tfrecord"), strange);
  const ToolResult inferred = run_tool({"inspect", "--pipeline", strange});
  INFO(inferred.out << inferred.err);
  REQUIRE(inferred.code == 0);
  CHECK_THAT(inferred.out, Catch::Contains("  files: \"" + dir.file("a*.tfrecord") + "\"\n"));
  const ToolResult check = run_tool({"check", dir.write("p.textproto", inferred.out)});
  INFO(check.err);
  CHECK(check.code == 0);
  fs::copy_file(strange, other);
  const ToolResult refused = run_tool({"inspect", "--pipeline", strange});
  CHECK(refused.code == 1);
  CHECK(refused.out.empty());
  CHECK_THAT(refused.err, Catch::Contains("the name of the file is not UTF-8"));
}
