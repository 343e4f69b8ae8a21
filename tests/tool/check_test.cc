// feedline check: whether a pipeline fits its data.
#include <algorithm>
#include <span>

#include "feedline/records.h"
#include "pipelines.h"
#include "support/catch.h"
#include "tool.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("check prints the plan, or what is wrong with it") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 512"));
  const ToolResult good = run_tool({"check", pipeline, "--replicas", "2"});
  INFO(good.err);
  CHECK(good.code == 0);
  CHECK(good.out.find("3,000 samples") != std::string::npos);
  CHECK(good.out.find("memory") != std::string::npos);

  const ToolResult uneven = run_tool({"check", pipeline, "--replicas", "3"});
  CHECK(uneven.code == 1);
  CHECK(uneven.err.find("510") != std::string::npos);  // the nearest sizes that 3 replicas divide
  CHECK(run_tool({"check", pipeline, "--set", "memory.limit=1KiB"}).code == 1);
  CHECK(run_tool({"check", pipeline, "--set", "batch.nonsense=1"}).code == 2);
  CHECK(run_tool({"check", pipeline, "--set", "batch"}).code == 2);
  CHECK(run_tool({"check", dir.write("bad.textproto", "source { fils: \"x\" }")}).code == 1);

  // A second text is overlaid on the first.
  const std::string overlay = dir.write("more.textproto", "batch { global_batch_size: 300 }");
  CHECK(run_tool({"check", pipeline, overlay, "--replicas", "3"}).code == 0);
}

TEST_CASE("check tries records, and fails where they are not what the features say") {
  const TempDir dir;
  const auto check = [&](const std::string& features, const std::vector<std::string>& more = {}) {
    const std::string files = "source { files: \"" + golden("chess/main-*.tfrecord") + "\" }\n";
    std::vector<std::string> arguments = {
        "check", dir.write("p.textproto", files + features + "batch { global_batch_size: 8 }\n")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool(arguments);
  };
  const std::string d = "feature { name: \"d\" dtype: BYTES length: 194 }\n",
                    s = "feature { name: \"s\" dtype: INT64 }\n";
  const ToolResult good = check(d + s);
  INFO(good.err);
  CHECK(good.code == 0);
  CHECK(good.err.empty());
  CHECK(good.out.find("tried    48 records of 3 files: all fit the pipeline") != std::string::npos);
  CHECK(check(d + s, {"--records", "1000000"}).out.find("tried    3,000 records of 3 files") != std::string::npos);

  const std::string at = golden("chess/main-00000-of-00003.tfrecord") + ": offset 0: record 0: feature ";
  const std::pair<std::string, std::string> wrong[] = {
      {"feature { name: \"s\" dtype: FLOAT32 }",
       "'s': the record holds INT64 values, but 'dtype' is FLOAT32; write dtype: INT64 if all records hold INT64 "
       "[wrong_dtype]"},
      {"feature { name: \"d\" dtype: BYTES length: 193 }",
       "'d': the record holds a value of 194 bytes, but 'length' is 193; change 'length', or remove it if records "
       "differ in length [wrong_length]"},
      {"feature { name: \"s\" dtype: INT64 shape: 2 }",
       "'s': the record holds 1 values, but shape [2] needs 2 values; change 'shape', or write kind: VARIABLE without "
       "a shape if the number of values differs between records [wrong_count]"},
      {"feature { name: \"score\" dtype: INT64 }",
       "'score': the record does not have this feature; features found: d s. If records may lack the feature, give the "
       "feature a default_value, or write kind: VARIABLE [missing_feature]"}};
  for (const auto& [feature, message] : wrong) {
    const ToolResult bad = check(feature);
    INFO(bad.err);
    CHECK(bad.code == 1);
    CHECK(bad.err == "feedline: " + at + message + "\n");
    CHECK(bad.out.find("tried    48 records of 3 files: 48 do not fit") != std::string::npos);
    CHECK(check(feature, {"--records", "0"}).code == 0);
    // All records are bad, so there is nothing to feed.
    CHECK(check(feature, {"--set", "errors.on_error=SKIP_RECORD"}).code == 1);
  }
  for (const std::string optional : {"default_value { int64_value: 0 }", "kind: VARIABLE"}) {
    const ToolResult absent = check(d + "feature { name: \"dd\" key: \"ss\" dtype: INT64 " + optional + " }\n");
    INFO(absent.err);
    CHECK(absent.code == 0);
    // The feed that starts after the check may have reached the end of the epoch; then it warns of the same feature.
    CHECK(absent.err.find("feedline: warning: feature 'dd': no record that was tried has this feature") !=
          std::string::npos);
  }

  // One bad record among good ones.
  const std::string some = dir.write("q.textproto", "source { files: \"" + golden("chess/short_record.tfrecord") +
                                                        "\" }\n" + d + "batch { global_batch_size: 1 }\n");
  const ToolResult raised = run_tool({"check", some});
  CHECK(raised.code == 1);
  CHECK(raised.err.find("[wrong_length]") != std::string::npos);
  const ToolResult skipped = run_tool({"check", some, "--set", "errors.on_error=SKIP_RECORD"});
  CHECK(skipped.code == 0);
  CHECK(skipped.err.find("feedline: warning: ") == 0);

  // Compressed files, and damage that ends the feed.
  const std::string packed = dir.write(
      "z.textproto", "source { files: \"" + golden("compression/gzip_examples.tfrecord") +
                         "\" }\nfeature { name: \"no such\" dtype: INT64 }\nbatch { global_batch_size: 1 }\n");
  CHECK(run_tool({"check", packed}).err.find("[missing_feature]") != std::string::npos);
  const std::string damaged =
      dir.write("r.textproto", "source { files: \"" + golden("framing/flip_data_first_record2.tfrecord") +
                                   "\" record_type: RAW }\nbatch { global_batch_size: 1 }\n");
  CHECK(run_tool({"check", damaged}).code == 1);
  CHECK(run_tool({"check", damaged, "--set", "errors.on_error=SKIP_RECORD"}).code == 0);
}

TEST_CASE("check warns of what is known to slow a feed down, and run does not") {
  const TempDir dir;
  // 8,192 records of 100 bytes in pieces of 16 KiB: GLOBAL reads 128 MiB of them.
  {
    RecordWriter writer(dir.file("a.tfrecord"));
    const std::string record(100, 'x');
    for (int i = 0; i < 8192; i++) writer.write(std::as_bytes(std::span(record)));
    writer.close();
  }
  const std::string pipeline =
      dir.write("p.textproto", "source { files: \"a.tfrecord\" record_type: RAW }\nbatch { global_batch_size: 512 }\n");
  const ToolResult plain = run_tool({"check", pipeline});
  INFO(plain.err);
  CHECK(plain.code == 0);
  CHECK(plain.err.empty());

  const ToolResult global = run_tool({"check", pipeline, "--set", "shuffle.mode=GLOBAL"});
  INFO(global.err);
  CHECK(global.code == 0);
  CHECK(global.err.find("feedline: warning: shuffle.mode: GLOBAL reads ") == 0);
  CHECK(global.err.find(" for each sample of 100 B, ") != std::string::npos);
  CHECK(std::count(global.err.begin(), global.err.end(), '\n') == 1);
  CHECK(run_tool({"run", pipeline, "--set", "shuffle.mode=GLOBAL", "--steps", "1"}).err.empty());

  // 8,192 steps of one record each, and of few batches ahead.
  const ToolResult small = run_tool({"check", pipeline, "--set", "batch.global_batch_size=1"});
  INFO(small.err);
  CHECK(small.err.find("feedline: warning: a replica's batch of 1 row has ") == 0);
  const ToolResult few =
      run_tool({"check", pipeline, "--set", "batch.global_batch_size=8", "--set", "parallelism.host_prefetch=2"});
  CHECK(few.err.find("parallelism.host_prefetch: 2 makes a thread of the feed sleep") != std::string::npos);

  // A thousand small files.
  const std::string bytes = read_file(dir.file("a.tfrecord")).substr(0, 116);
  for (int i = 0; i < 1000; i++) dir.write("b" + std::to_string(i) + ".tfrecord", bytes);
  const ToolResult files = run_tool({"check", pipeline, "--set", "source=files: 'b*.tfrecord' record_type: RAW"});
  INFO(files.err);
  CHECK(files.err.find("feedline: warning: the 1,000 files have 116 B each") == 0);
}

TEST_CASE("every command refuses a feed without a step, unless it is allowed") {
  const TempDir dir;
  const std::string empty =
      dir.write("empty.textproto", run_tool({"inspect", "--pipeline", golden("framing/empty_file.tfrecord")}).out);
  const std::string large = dir.write("large.textproto", chess_pipeline("global_batch_size: 4096"));
  const std::pair<std::string, std::string> pipelines[] = {
      {empty, "the data has no records: 1 file"},
      {large,
       "the data has 3,000 samples, but with last_batch_policy DROP a step needs a whole global batch of 4,096 rows"}};
  for (const auto& [pipeline, message] : pipelines)
    for (std::vector<std::string> arguments : {std::vector<std::string>{"check", pipeline},
                                               {"run", pipeline},
                                               {"dump", pipeline, "--out", dir.file("out")}}) {
      INFO(arguments[0]);
      const ToolResult refused = run_tool(arguments);
      CHECK(refused.code == 1);
      CHECK(refused.err.find(message) != std::string::npos);
      arguments.insert(arguments.end(), {"--set", "epoch.allow_empty=true"});
      CHECK(run_tool(arguments).code == 0);
    }
}

TEST_CASE("stages are turned off by --set") {
  const TempDir dir;
  const std::string pipeline =
      dir.write("p.textproto", "shuffle { mode: BUFFER buffer_size: 50 shuffle_files: true }\nfilter: \"s > 0\"\n" +
                                   chess_pipeline("global_batch_size: 8"));
  CHECK(run_tool({"check", pipeline}).out.find("shuffle ") != std::string::npos);
  for (const std::string off : {"shuffle=", "shuffle.mode=NONE"}) {
    const ToolResult plain = run_tool({"check", pipeline, "--set", off, "--set", "filter="});
    INFO(plain.err);
    CHECK(plain.code == 0);
    CHECK(plain.out.find("shuffle ") == std::string::npos);
    CHECK(plain.out.find("3,000 samples") != std::string::npos);
  }
}

TEST_CASE("devices: the host's, or GPUs where there are some") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 256"));
  for (const std::string devices : {"host:2", "auto"}) {
    const ToolResult result = run_tool({"run", pipeline, "--json", "--devices", devices});
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(result.json().at("records") == 2816);
  }
  CHECK(run_tool({"run", pipeline, "--devices", "gpu"}).code == 2);
  CHECK(run_tool({"run", pipeline, "--devices", "host", "--replicas", "2"}).code == 2);
  const ToolResult absent = run_tool({"check", pipeline, "--devices", "cuda:99"});
  CHECK(absent.code == 1);
  CHECK(absent.err.find("there is no GPU 99") != std::string::npos);
}

TEST_CASE("a message of several lines has several lines") {
  const TempDir dir;
  const std::string pipeline = dir.write(
      "p.textproto", "source { files: '" + golden("chess/one.tfrecord") +
                         "' } feature { name: 'n' dtype: INT64 default_value { int64_value: 1 } } "
                         "output { name: 'x' expression { formula: 'n + m' } } batch { global_batch_size: 1 }");
  const ToolResult result = run_tool({"check", pipeline});
  CHECK(result.code == 1);
  CHECK(result.err.find("\n  n + m\n      ^") != std::string::npos);
}
