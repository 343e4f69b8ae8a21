// dump, check, run, demo, and the pipelines that inspect infers.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>

#include "feedline/records.h"
#include "flowgraph/example_writer.h"
#include "golden/manifest.h"
#include "support/catch.h"
#include "support/launch.h"
#include "support/process.h"
#include "support/skip.h"
#include "tool.h"

using namespace feedline;
using namespace feedline::test;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

std::string golden(const std::string& name) { return std::string(FEEDLINE_GOLDEN) + "/" + name; }

std::string octal(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    char escaped[5];
    std::snprintf(escaped, sizeof escaped, "\\%03o", static_cast<unsigned char>(c));
    text += escaped;
  }
  return "\"" + text + "\"";
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

/// Returns a pipeline with the features of a golden case as f0, f1, ..., each delivered unchanged.
std::string pipeline_of(const GoldenCase& c, const std::string& batch) {
  std::string text = "source { compression: " + c.compression;
  for (const std::string& file : c.files) text += " files: \"" + file + "\"";
  if (c.parse == "sequence_example") text += " record_type: SEQUENCE_EXAMPLE";
  text += " }\n";
  for (size_t i = 0; i < c.features.size(); i++) {
    const GoldenFeature& f = c.features[i];
    text += "feature { name: \"f" + std::to_string(i) + "\" key: " + octal(f.name);
    text += f.dtype == "bytes" ? " dtype: BYTES" : f.dtype == "float32" ? " dtype: FLOAT32" : " dtype: INT64";
    text += f.kind == "var"      ? " kind: VARIABLE"
            : f.kind == "ragged" ? " kind: RAGGED"
            : f.kind == "fixed"  ? " kind: FIXED"
                                 : " kind: FIXED_SEQUENCE";
    if (f.where == "feature_list") text += " where: FEATURE_LIST";
    if (f.where == "feature_list" && f.kind == "fixed_sequence" && !f.allow_missing) text += " required: true";
    for (const int64_t axis : f.shape) text += " shape: " + std::to_string(axis);
    for (const json& value : f.default_value.is_array() ? f.default_value : json::array()) {
      text += f.dtype == "bytes"     ? " default_value { bytes_value: " + octal(from_hex(value)) + " }"
              : f.dtype == "float32" ? " default_value { float32_value: " + value.dump() + " }"
                                     : " default_value { int64_value: " + value.dump() + " }";
    }
    text += " }\n";
  }
  return text + "batch { " + batch + " }\nepoch { allow_empty: true }\n";
}

struct Dump {
  Dump(const std::string& text, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"dump", dir.write("pipeline.textproto", text), "--out", dir.file("out")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    result = run_tool(arguments);
  }
  NpyArray array(const std::string& name) const { return load_npy(dir.file("out/" + name + ".npy")); }
  bool has(const std::string& name) const { return fs::exists(dir.file("out/" + name + ".npy")); }
  json report() const { return json::parse(read_file(dir.file("out/report.json"))); }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir.file("out"))) names.insert(entry.path().filename().string());
    return names;
  }

  TempDir dir;
  ToolResult result;
};

bool same(const NpyArray& a, const NpyArray& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes;
}

/// Returns a stored array of a case, if it has one of this name.
std::optional<NpyArray> expected(const std::map<std::string, NpyArray>& stored, const std::string& name) {
  if (const auto found = stored.find(name); found != stored.end()) return found->second;
  return std::nullopt;
}

/// Returns whether the dump of feature i is equal to what TensorFlow reads.
bool matches(const Dump& dump, const GoldenCase& c, const std::map<std::string, NpyArray>& stored, size_t i) {
  const std::string f = "f" + std::to_string(i);
  const auto part = [&](const std::string& golden_part, const std::string& file) {
    const auto want = expected(stored, f + "." + golden_part);
    return !want || same(*want, dump.array(f + file));
  };
  const auto dense = expected(stored, f + ".dense");
  if (c.features[i].dtype == "bytes" && dense) {  // all values have one length, so the golden array has no offsets
    const auto offsets = dump.array(f + ".offsets");
    const NpyArray bytes = dump.array(f + ".bytes");
    return bytes.bytes == dense->bytes && offsets.shape[0] == dense->shape[0] + 1;
  }
  return part("dense", "") && part("values", ".values") && part("bytes", ".bytes") && part("offsets", ".offsets") &&
         part("row_splits", ".row_splits") && part("row_splits0", ".row_splits") && part("row_splits1", ".step_splits");
}

std::string chess_pipeline(const std::string& batch) {
  return "source { files: \"" + golden("chess/main-*.tfrecord") + "\" }" + R"text(
feature { name: "d" dtype: BYTES length: 194 }
feature { name: "s" dtype: INT64 }
output  { name: "board" dtype: INT8 feature: "d"
          unpack_bits { shape: [8, 8, 24] channel_order: [0,4,8,12,16,20,1,5,9,13,17,21,2,6,10,14,18,22,3,7,11,15,19,23]
                        scale: [1,1,1,1,1,1,-1,-1,-1,-1,-1,-1,1,1,1,1,1,1,-1,-1,-1,-1,-1,-1] } }
output  { name: "flags" dtype: INT8 feature: "d" unpack_bits { bit_offset: 1536 shape: [10] } }
output  { name: "mate"  dtype: FLOAT32 feature: "d" unpack_bits { bit_offset: 1546 } internal: true }
output  { name: "score" dtype: FLOAT64 expression {
          formula: "(1-out.mate)*A*tanh(s/K) + out.mate*sign(s)*(A+(1-A)/(B-1)*max(0,B-abs(s)))"
          constants { key: "A" value: 0.85 } constants { key: "K" value: 410 } constants { key: "B" value: 30 } } }
output  { name: "raw" feature: "d" }
batch   { )text" +
         batch + " }";
}

/// Returns the distance between two numbers in units in the last place.
int64_t ulps(double a, double b) {
  int64_t x = 0, y = 0;
  std::memcpy(&x, &a, 8);
  std::memcpy(&y, &b, 8);
  if (x < 0) x = INT64_MIN - x;
  if (y < 0) y = INT64_MIN - y;
  return std::abs(x - y);
}

}  // namespace

TEST_CASE("dump of chess is what TensorFlow computes, whatever the batches and replicas") {
  const auto want = load_npz(golden("chess/main.npz"));
  for (const auto& [batch, replicas] : std::vector<std::pair<std::string, std::string>>{
           {"global_batch_size: 512 last_batch_policy: PARTIAL", "1"},
           {"global_batch_size: 96 last_batch_policy: PARTIAL", "3"},
           {"global_batch_size: 1024 last_batch_policy: PAD valid_mask: \"valid\"", "2"}}) {
    INFO(batch);
    const Dump dump(chess_pipeline(batch),
                    {"--replicas", replicas, "--epoch", "1", "--rank", "0", "--world-size", "1"});
    INFO(dump.result.err);
    REQUIRE(dump.result.code == 0);
    CHECK(same(dump.array("board"), want.at("out.board")));
    CHECK(same(dump.array("flags"), want.at("out.flags")));
    CHECK(same(dump.array("raw"), want.at("f0.dense")));
    const NpyArray score = dump.array("score");
    CHECK(score.dtype == "<f8");
    REQUIRE(score.shape == std::vector<int64_t>{3000});
    int64_t most = 0;
    for (size_t i = 0; i < 3000; i++)
      most = std::max(most, ulps(score.as<double>()[i], want.at("out.score").as<double>()[i]));
    CHECK(most <= 8);
    const json report = dump.report();
    CHECK(report.at("samples") == 3000);
    CHECK(report.at("records") == 3000);
    CHECK(report.at("dropped") == 0);
    CHECK(report.at("errors").empty());
    CHECK(report.at("files").size() == 3);
    if (dump.has("valid")) {
      CHECK(report.at("filler") == 72);
      const NpyArray valid = dump.array("valid");
      CHECK(valid.dtype == "|b1");
      CHECK(valid.bytes == std::vector<std::byte>(3000, std::byte{1}));
    }
    CHECK(!dump.has("mate"));
  }
  const Dump dropped(chess_pipeline("global_batch_size: 1024 last_batch_policy: DROP"));
  CHECK(dropped.array("flags").shape == std::vector<int64_t>{2048, 10});
  CHECK(dropped.report().at("samples") == 2048);
  CHECK(dropped.report().at("steps") == 2);
  CHECK(dropped.report().at("dropped") == 3000 - 2048);
}

TEST_CASE("dump of every golden Example and SequenceExample is what TensorFlow parses") {
  size_t good = 0, bad = 0;
  for (const GoldenCase& c : golden_cases()) {
    if ((c.parse != "example" && c.parse != "sequence_example") || c.features.empty() ||
        (c.oddity.is_object() && !c.oddity.empty()))
      continue;
    for (const std::string batch : {"global_batch_size: 1024", "global_batch_size: 2"}) {
      if (batch.back() == '2' && c.records > 300) continue;
      INFO(c.name << " " << batch);
      const Dump dump(pipeline_of(c, batch + " last_batch_policy: PARTIAL"));
      INFO(dump.result.err);
      const json report = dump.report();
      if (c.error.category.empty()) {
        REQUIRE(dump.result.code == 0);
        CHECK(report.at("samples") == c.records);
        CHECK(report.at("errors").empty());
        const auto stored = c.npz.empty() ? std::map<std::string, NpyArray>() : load_npz(c.npz);
        for (size_t i = 0; i < c.features.size(); i++) {
          INFO("feature " << i << " " << c.features[i].kind << " " << c.features[i].dtype);
          CHECK(matches(dump, c, stored, i));
        }
        good++;
      } else if (c.error.stage != "post") {
        CHECK(dump.result.code == 1);
        REQUIRE(report.at("errors").size() == 1);
        std::set<std::string> acceptable(c.error.also_acceptable.begin(), c.error.also_acceptable.end());
        acceptable.insert(c.error.category);
        CHECK(acceptable.count(report.at("errors")[0].at("category").get<std::string>()) == 1);
        // The good rows before the error are delivered, also those of a batch that could not be finished.
        if (!c.error.failing_records.empty()) CHECK(report.at("samples") == c.error.failing_records[0]);
        if (c.error.stage == "read" && c.error.records_exact) CHECK(report.at("samples") == c.records);
        bad++;
      }
    }
  }
  std::printf("dump: %zu good and %zu bad runs of golden cases\n", good, bad);
  CHECK(good > 100);
  CHECK(bad > 100);
}

TEST_CASE("dump leaves out filler in the middle of a batch") {
  const TempDir dir;
  const auto damaged = golden("framing/flip_data_first_record2.tfrecord");
  const Dump skipped("source { files: \"" + damaged +
                     "\" record_type: RAW }\nbatch { global_batch_size: 4 last_batch_policy: PAD }\n"
                     "errors { on_error: SKIP_RECORD }\noutput { name: \"record\" feature: \"record\" }\n"
                     "output { name: \"n\" feature: \"@record\" }\noutput { name: \"at\" feature: \"@offset\" }\n");
  INFO(skipped.result.err);
  REQUIRE(skipped.result.code == 0);
  CHECK(skipped.report().at("samples") == 4);
  CHECK(skipped.report().at("errors").size() == 1);
  const NpyArray offsets = skipped.array("record.offsets");
  CHECK(std::vector<int64_t>(offsets.as<int64_t>().begin(), offsets.as<int64_t>().end()) ==
        std::vector<int64_t>{0, 30, 77, 130, 189});

  // A record that is found to be bad only when it is parsed.
  const Dump parsed("source { files: \"" + golden("chess/short_record.tfrecord") +
                    "\" }\n"
                    "feature { name: \"d\" dtype: BYTES length: 194 }\nfeature { name: \"s\" dtype: INT64 }\n"
                    "batch { global_batch_size: 8 last_batch_policy: PARTIAL }\nerrors { on_error: SKIP_RECORD }\n"
                    "output { name: \"n\" feature: \"@record\" }\noutput { name: \"d\" feature: \"d\" }\n");
  INFO(parsed.result.err);
  REQUIRE(parsed.result.code == 0);
  const json report = parsed.report();
  REQUIRE(report.at("errors").size() == 1);
  CHECK(report.at("errors")[0].at("category") == "wrong_length");
  CHECK(report.at("errors")[0].at("feature") == "d");
  const auto bad = report.at("errors")[0].at("record").get<int64_t>();
  const NpyArray numbers = parsed.array("n");
  CHECK(report.at("samples") == numbers.shape[0]);
  CHECK(parsed.array("d").shape[0] == numbers.shape[0]);
  int64_t next = 0;
  for (const int64_t number : numbers.as<int64_t>()) {
    if (next == bad) next++;
    CHECK(number == next++);
  }
}

TEST_CASE("dump raises an error where the order reaches it") {
  for (const std::string replicas : {"1", "2"}) {
    const Dump dump("source { files: \"" + golden("shards/fourth_damaged-*.tfrecord") +
                        "\" record_type: RAW }\n"
                        "batch { global_batch_size: 16 last_batch_policy: DROP }\n"
                        "output { name: \"file\" feature: \"@file\" }\noutput { name: \"n\" feature: \"@record\" }\n",
                    {"--replicas", replicas});
    CHECK(dump.result.code == 1);
    const GoldenCase& c = golden_case("shards/fourth_damaged");
    const json report = dump.report();
    REQUIRE(report.at("errors").size() == 1);
    CHECK(report.at("errors")[0].at("category") == "bad_length_crc");
    CHECK(report.at("errors")[0].at("file") == c.files[3]);
    CHECK(report.at("samples") == c.records);
    const NpyArray numbers = dump.array("n");
    REQUIRE(numbers.shape[0] == static_cast<int64_t>(c.records));
    for (int64_t i = 0; i < numbers.shape[0]; i++) CHECK(numbers.as<int64_t>()[static_cast<size_t>(i)] == i);
    CHECK(report.at("files")[static_cast<size_t>(dump.array("file").as<int64_t>().back())] == c.files[3]);
  }
}

TEST_CASE("dump names and types files as promised") {
  const Dump dump(
      "source { files: \"" + golden("chess/one.tfrecord") +
      "\" }\nfeature { name: \"s\" dtype: INT64 }\n"
      "batch { global_batch_size: 1 }\n"
      "output { name: \"a/b%c\" dtype: FLOAT32 feature: \"s\" }\n"
      "output { name: \"b16\" dtype: BFLOAT16 feature: \"s\" }\noutput { name: \"f16\" dtype: FLOAT16 feature: \"s\" "
      "}\n"
      "output { name: \"u8\" dtype: UINT8 feature: \"s\" }\noutput { name: \"yes\" dtype: BOOL feature: \"s\" }\n");
  INFO(dump.result.err);
  REQUIRE(dump.result.code == 0);
  CHECK(dump.files() ==
        std::set<std::string>{"a%2Fb%25c.npy", "b16.bf16.npy", "f16.npy", "u8.npy", "yes.npy", "report.json"});
  CHECK(dump.array("b16.bf16").dtype == "<u2");
  CHECK(dump.array("f16").dtype == "<f2");
  CHECK(dump.array("u8").dtype == "|u1");
  CHECK(dump.array("yes").dtype == "|b1");
  for (const char* field : {"records", "steps", "samples", "dropped", "filler", "errors", "audit", "files"})
    CHECK(dump.report().contains(field));
}

TEST_CASE("dump says why it cannot") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 8"));
  const std::string file = dir.write("file", "");
  CHECK(run_tool({"dump", pipeline, "--out", file}).code == 1);
  CHECK(run_tool({"dump", dir.file("missing.textproto"), "--out", dir.file("out")}).code == 1);
  const ToolResult endless = run_tool({"dump", pipeline, "--out", dir.file("out"), "--set", "epoch.repeat=-1"});
  CHECK(endless.code == 1);
  CHECK(endless.err.find("epoch.repeat") != std::string::npos);
  CHECK(json::parse(read_file(dir.file("out/report.json"))).at("errors")[0].at("category") == "bad_pipeline");
}

TEST_CASE("dump takes some steps of an epoch that never ends") {
  const Dump dump(chess_pipeline("global_batch_size: 1024") + " epoch { repeat: -1 }", {"--steps", "4"});
  INFO(dump.result.err);
  REQUIRE(dump.result.code == 0);
  CHECK(dump.report().at("samples") == 4096);
  CHECK(dump.array("flags").shape == std::vector<int64_t>{4096, 10});
}

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
  CHECK(good.out.find("tried    48 records of 3 files: all fit the pipeline's features") != std::string::npos);
  CHECK(check(d + s, {"--records", "1000000"}).out.find("tried    3,000 records of 3 files") != std::string::npos);

  const std::string at = golden("chess/main-00000-of-00003.tfrecord") + ": offset 0: record 0: feature ";
  const std::pair<std::string, std::string> wrong[] = {
      {"feature { name: \"s\" dtype: FLOAT32 }",
       "'s': the record holds INT64 values, dtype wants FLOAT32; write dtype: INT64 if all records hold INT64 "
       "[wrong_dtype]"},
      {"feature { name: \"d\" dtype: BYTES length: 193 }",
       "'d': the record holds a value of 194 bytes, length wants 193; change length, or remove it if records differ "
       "[wrong_length]"},
      {"feature { name: \"s\" dtype: INT64 shape: 2 }",
       "'s': the record holds 1 values, shape [2] wants 2; change shape, or write kind: VARIABLE without a shape if "
       "records differ [wrong_count]"},
      {"feature { name: \"score\" dtype: INT64 }",
       "'score': the record does not have this feature; there are: d s. If records may lack it, give it a "
       "default_value, or kind: VARIABLE [missing_feature]"}};
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

TEST_CASE("every command refuses a feed without a step, unless it is allowed") {
  const TempDir dir;
  const std::string empty =
      dir.write("empty.textproto", run_tool({"inspect", "--pipeline", golden("framing/empty_file.tfrecord")}).out);
  const std::string large = dir.write("large.textproto", chess_pipeline("global_batch_size: 4096"));
  const std::pair<std::string, std::string> pipelines[] = {
      {empty, "the data has no record: 1 file"},
      {large, "the data has 3,000 samples, but a global batch of 4,096 with last_batch_policy DROP"}};
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

TEST_CASE("run reports what the design fixes") {
  const TempDir dir;
  const std::string pipeline =
      dir.write("p.textproto", chess_pipeline("global_batch_size: 256 last_batch_policy: PARTIAL"));
  const ToolResult result = run_tool({"run", pipeline, "--json", "--epochs", "2", "--replicas", "2", "--io", "pread",
                                      "--direct", "off", "--step-ms", "1"});  // 24 steps are long enough for rates
  INFO(result.err);
  REQUIRE(result.code == 0);
  const json report = result.json();
  for (const char* field :
       {"records", "wall_s", "records_per_s", "bytes_per_s", "bytes_read", "cpu_s", "cpu_ns_per_record",
        "rss_peak_bytes", "first_batch_s", "data_readiness", "next_wait_s", "next_wait_share"}) {
    INFO(field);
    CHECK(report.at(field).is_number());
  }
  const json& next_us = report.at("next_us");
  for (const char* field : {"p50", "p99", "max"}) CHECK(next_us.at(field).is_number());
  double longest = 0;
  int64_t calls = 0;
  for (const json& bucket : next_us.at("histogram")) {
    CHECK(bucket.at(0) > longest);
    longest = bucket.at(0);
    calls += bucket.at(1).get<int64_t>();
  }
  CHECK(longest == next_us.at("max"));
  CHECK(calls >= 46);  // all calls but the first of each replica
  CHECK(report.at("records") == 6000);
  CHECK(report.at("steps") == 24);
  CHECK(report.at("bytes_read") >= 2 * 686848);
  CHECK(!report.at("stages").empty());
  for (const json& stage : report.at("stages")) {
    for (const char* field : {"busy_s", "wait_s", "queue"}) CHECK(stage.at(field).is_number());
  }

  // The audit does not depend on batches and replicas, and sums up over epochs.
  const json one = run_tool({"run", pipeline, "--json", "--set", "batch.global_batch_size=100"}).json();
  CHECK(report.at("audit").get<uint64_t>() == 2 * one.at("audit").get<uint64_t>());

  const json few = run_tool({"run", pipeline, "--json", "--steps", "3", "--step-ms", "2"}).json();
  CHECK(few.at("records") == 3 * 256);
  CHECK(few.at("steps") == 3);
  CHECK(few.at("wall_s") >= 0.004);

  const json replayed = run_tool({"run", pipeline, "--json", "--replay", "2", "--steps", "1000"}).json();
  CHECK(replayed.at("records") == 1000 * 256);
  CHECK(replayed.at("next_wait_share").is_null());  // there is no feed to wait for
}

TEST_CASE("run says how much of its time the trainer has lost, and what it waited for") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 256"));
  const json report = run_tool({"run", pipeline, "--json", "--step-ms", "2", "--replicas", "2"}).json();
  double waited = 0;
  for (const auto& [stage, seconds] : report.at("waited_s").items()) {
    CHECK(seconds > 0);
    waited += seconds.get<double>();
  }
  CHECK(waited == Approx(report.at("next_wait_s").get<double>()));
  CHECK(report.at("next_wait_share") >= 0);
  CHECK(report.at("next_wait_share") <= 1);
  if (report.at("data_readiness") == 1) CHECK(report.at("waited_for") == "");

  const std::string trained = run_tool({"run", pipeline, "--step-ms", "2"}).out;
  INFO(trained);
  CHECK_THAT(trained, Catch::Contains("trainer  waited ") && Catch::Contains(" % of the time") &&
                          Catch::Contains("its batch was ready in ") && Catch::Contains("records/s") &&
                          Catch::Contains("no room: "));
  if (trained.find("waited 0.0 % of the time") != std::string::npos)
    CHECK_THAT(trained, Catch::Contains("waited 0.0 % of the time\n"));  // nothing is named that it waited for

  // Without a trainer the time spent waiting for the feed means nothing, so it is not reported as lost.
  const std::string sink = run_tool({"run", pipeline}).out;
  CHECK_THAT(sink, Catch::Contains("trainer  none (--step-ms 0): this is as fast as the feed goes") &&
                       !Catch::Contains("ready") && !Catch::Contains("% of the time"));
}

TEST_CASE("a run that is too short reports no rates") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 256"));
  const json report = run_tool({"run", pipeline, "--json", "--steps", "1"}).json();
  CHECK(report.at("records") == 256);
  CHECK(report.at("records_per_s").is_null());
  CHECK(report.at("bytes_per_s").is_null());
  CHECK(report.at("error").is_null());
  CHECK_THAT(run_tool({"run", pipeline, "--steps", "1"}).out,
             Catch::StartsWith("256 records in 1 step, ") && Catch::Contains(": too short to tell the rate\n"));
}

TEST_CASE("what another process writes to is left alone") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 1024"));
  const std::string state = dir.file("state"), out = dir.file("out"), lock = state + ".lock";
  fs::create_directory(out);
  const auto hold = [](const std::string& path, int flags) {
    const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
    REQUIRE(flock(fd, LOCK_EX | LOCK_NB) == 0);
    return fd;
  };
  const auto refused = [](const ToolResult& result, const std::string& path, const std::string& why) {
    CHECK(result.code == 1);
    CHECK_THAT(result.err,
               Catch::Contains(path + ": another feedline process is " + why) && Catch::Contains("wait until"));
  };
  int held = hold(lock, O_RDWR | O_CREAT);
  refused(run_tool({"run", pipeline, "--state", state}), state, "using this file");
  refused(run_tool({"dump", pipeline, "--out", dir.file("other"), "--state", state}), state, "using this file");
  CHECK_FALSE(fs::exists(state));
  close(held);  // the lock file stays, as after a kill
  CHECK(run_tool({"run", pipeline, "--state", state}).code == 0);
  CHECK(fs::exists(state));
  CHECK_FALSE(fs::exists(lock));

  held = hold(out, O_RDONLY | O_DIRECTORY);
  refused(run_tool({"dump", pipeline, "--out", out}), out, "writing to this folder");
  CHECK(fs::is_empty(out));
  close(held);
  CHECK(run_tool({"dump", pipeline, "--out", out}).code == 0);
}

TEST_CASE("ranks of the tool that meet compare what they were given, and are sent rows") {
  const TempDir dir;
  {
    RecordWriter writer(dir.file("data"));
    for (int i = 0; i < 96; i++) {
      const std::string record(20, static_cast<char>('a' + i % 26));
      writer.write(std::as_bytes(std::span(record)));
    }
    writer.close();
  }
  const std::string pipeline =
      dir.write("p.textproto",
                "source { files: 'data' record_type: RAW } feature { name: 'record' dtype: BYTES length: 20 }\n"
                "batch { global_batch_size: 12 last_batch_policy: DROP }");
  const auto ranks = [&](const std::vector<std::string>& of_last) {
    const std::string meet = "localhost:" + std::to_string(free_port());
    std::deque<Tool> tools;
    for (const char* rank : {"0", "1", "2"}) {
      std::vector<std::string> arguments = {"run",          pipeline, "--json", "--rank", rank,
                                            "--world-size", "3",      "--meet", meet};
      if (*rank == '2') arguments.insert(arguments.end(), of_last.begin(), of_last.end());
      tools.emplace_back(arguments);
    }
    std::vector<ToolResult> results;
    for (Tool& tool : tools) results.push_back(tool.wait());
    return results;
  };
  for (const ToolResult& result : ranks({})) {
    INFO(result.err);
    REQUIRE(result.code == 0);
    CHECK(result.json().at("records") == 32);
    CHECK(result.json().at("bytes_received") == 0);
    CHECK(result.json().at("epoch_audit").at("holds") == true);  // the audit of all ranks together
  }
  for (const ToolResult& result : ranks({"--set", "seed=7"})) {
    CHECK(result.code == 1);
    CHECK_THAT(result.err, Catch::Contains("rank 2 differs from rank 0: seed"));
  }
  dir.write("p.textproto", read_file(pipeline) + " distribute { mode: SCATTER }");
  const std::vector<ToolResult> scattered = ranks({});
  for (size_t rank = 0; rank < 3; rank++) {
    INFO(scattered[rank].err);
    REQUIRE(scattered[rank].code == 0);
    const auto report = scattered[rank].json();
    CHECK(report.at("records") == 32);
    CHECK(report.at("distribute_mode") == "SCATTER");
    CHECK((report.at("bytes_received") > 0) == (rank > 0));
    CHECK(report.at("outputs").at("record") == "made on the host");
  }
}

TEST_CASE("run and dump say whether the epoch was all of its data, and fail where it was not") {
  const TempDir dir;
  const std::string file = dir.file("data");
  const auto bytes_of = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  {
    RecordWriter writer(file);
    for (int i = 0; i < 100; i++) writer.write(bytes_of(std::string(20, 'a')));
    writer.close();
  }
  const std::string pipeline = dir.write("p.textproto",
                                         "source { files: 'data' record_type: RAW index { stride: '64' } }\n"
                                         "batch { global_batch_size: 16 last_batch_policy: DROP }");
  const auto run = [&](std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"run", pipeline, "--json"});
    return run_tool(more);
  };
  for (const char* replicas : {"1", "2"}) {
    const ToolResult whole = run({"--replicas", replicas});
    CHECK(whole.code == 0);
    const json audit = whole.json().at("epoch_audit");
    CHECK(audit.at("holds") == true);
    CHECK(audit.at("delivered").get<uint64_t>() + audit.at("dropped").get<uint64_t>() ==
          audit.at("expected").get<uint64_t>());
    CHECK(whole.json().at("differing_epochs") == 0);
  }
  CHECK(run({"--steps", "2"}).json().at("epoch_audit").is_null());
  CHECK(run_tool({"run", pipeline}).out.find("delivered all of its data exactly once") != std::string::npos);
  uint64_t parts = 0;
  for (const char* rank : {"0", "1"}) {
    const ToolResult part = run({"--rank", rank, "--world-size", "2"});
    CHECK(part.code == 0);
    const json audit = part.json().at("epoch_audit");
    CHECK(audit.at("holds").is_null());
    for (const char* field : {"delivered", "dropped", "bad"}) parts += audit.at(field).get<uint64_t>();
    if (*rank == '1') CHECK(parts == audit.at("expected").get<uint64_t>());
  }
  CHECK(run_tool({"dump", pipeline, "--out", dir.file("out")}).code == 0);
  CHECK(json::parse(read_file(dir.file("out/report.json"))).at("epoch_audit").at("holds") == true);

  // Replaces one record by another valid one and restores the file's time. Nothing shows the change, so the index is
  // still used.
  struct stat before {};
  REQUIRE(stat(file.c_str(), &before) == 0);
  {
    const std::string beside = dir.file("beside");
    RecordWriter writer(beside);
    writer.write(bytes_of(std::string(20, 'b')));
    writer.close();
    const std::string bytes = read_file(beside);
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(7 * bytes.size()))
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  const timespec times[] = {before.st_atim, before.st_mtim};
  REQUIRE(utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
  const ToolResult changed = run({"--epochs", "2", "--set", "source.index.mode=REQUIRE"});
  INFO(changed.err);
  CHECK(changed.code == 1);
  CHECK(changed.json().at("epoch_audit").at("holds") == false);
  CHECK(changed.json().at("differing_epochs") == 2);
  CHECK(changed.err.find("2 epochs did not deliver") != std::string::npos);
  const ToolResult dumped = run_tool({"dump", pipeline, "--out", dir.file("out")});
  CHECK(dumped.code == 1);
  CHECK(json::parse(read_file(dir.file("out/report.json"))).at("epoch_audit").at("holds") == false);
}

TEST_CASE("run fails with the place of the error, in JSON, too") {
  const TempDir dir;
  const std::string pipeline = dir.write(
      "p.textproto", "source { files: \"" + golden("chess/short_record.tfrecord") +
                         "\" }\n"
                         "feature { name: \"d\" dtype: BYTES length: 194 }\nbatch { global_batch_size: 8 }\n");
  const ToolResult failed = run_tool({"run", pipeline, "--json"});
  CHECK(failed.code == 1);
  CHECK(failed.json().at("errors").back().at("category") == "wrong_length");
  CHECK(failed.json().at("error").at("category") == "wrong_length");
  CHECK(failed.err.find("wrong_length") != std::string::npos);
  const json skipped =
      run_tool({"run", pipeline, "--json", "--epochs", "3", "--set", "errors.on_error=SKIP_RECORD"}).json();
  CHECK(skipped.at("errors").size() == 1);
  CHECK(skipped.at("errors_total") == 1);
  const ToolResult told = run_tool({"run", pipeline, "--set", "errors.on_error=SKIP_RECORD"});
  CHECK(told.out.find("[wrong_length]") != std::string::npos);
  const ToolResult missing = run_tool(
      {"run", dir.write("q.textproto", "source { files: \"nothing-*\" }\nbatch { global_batch_size: 8 }"), "--json"});
  CHECK(missing.code == 1);
  CHECK(missing.err.find(dir.file("nothing-*")) != std::string::npos);
}

namespace {

/// Sends the tool a signal once it has threads: it installs its handler before it starts any.
ToolResult signalled(Tool& tool, int number) {
  const std::string tasks = "/proc/" + std::to_string(tool.pid()) + "/task";
  while (std::distance(fs::directory_iterator(tasks), fs::directory_iterator()) < 3) std::this_thread::yield();
  tool.signal(number);
  return tool.wait();
}

}  // namespace

TEST_CASE("run keeps its state, goes on from it, and counts epochs from the first") {
  const TempDir dir;
  const std::string pipeline =
      dir.write("p.textproto", chess_pipeline("global_batch_size: 256 last_batch_policy: PARTIAL"));
  const std::string state = dir.file("state");
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", pipeline, "--json", "--state", state});
    return run_tool(more);
  };
  const ToolResult first = run({"--epochs", "2", "--steps", "5", "--replicas", "2"});
  REQUIRE(first.code == 0);
  CHECK(first.json().at("resumed").is_null());
  CHECK(json::parse(read_file(state)).at("step") == 5);
  const ToolResult second = run({"--epochs", "2"});
  REQUIRE(second.code == 0);
  CHECK(second.err.find("step 5 of epoch 0") != std::string::npos);
  CHECK(second.json().at("resumed").at("step") == 5);
  CHECK(second.json().at("records") == 2 * 3000 - 5 * 256);
  CHECK(json::parse(read_file(state)).at("epoch") == 2);
  const std::string end = read_file(state);
  const ToolResult nothing = run({"--epochs", "2"});
  CHECK(nothing.code == 0);
  CHECK(nothing.json().at("records") == 0);
  CHECK(run({"--epochs", "3"}).json().at("records") == 3000);

  // Two ranks resume from the state that one rank left.
  dir.write("state", end);
  uint64_t records = 0;
  for (const char* rank : {"0", "1"}) {
    const std::string own = dir.write(std::string("state-") + rank, end);
    const ToolResult part =
        run_tool({"run", pipeline, "--json", "--state", own, "--epochs", "3", "--rank", rank, "--world-size", "2"});
    records += part.json().at("records").get<uint64_t>();
  }
  CHECK(records == 3000);
  CHECK(read_file(dir.file("state-0")) == read_file(dir.file("state-1")));

  const ToolResult changed = run({"--set", "batch.global_batch_size=128", "--epochs", "3"});
  CHECK(changed.code == 1);
  CHECK(changed.err.find("changed: batch") != std::string::npos);
  CHECK(changed.err.find(state) != std::string::npos);
  CHECK(read_file(state) == end);
  CHECK(run({"--set", "batch.global_batch_size=128", "--epochs", "3", "--accept-changes"}).code == 0);
  dir.write("state", "nonsense");
  CHECK(run({}).code == 1);
  CHECK(run({"--replay", "2"}).code == 2);
  CHECK(run_tool({"run", pipeline, "--accept-changes"}).code == 2);
  fs::remove(state);
  fs::create_directory(state);
  CHECK(run({}).err.find("io_error") != std::string::npos);
  CHECK(run_tool({"run", pipeline, "--state", dir.file("none/state")}).code == 1);  // the state cannot be stored
}

TEST_CASE("dumps of parts, read one after another, are the dump of the whole") {
  const TempDir dir;
  for (const char* shuffle : {"", "shuffle { block_size: '16KiB' buffer_size: 500 }\n"}) {
    const std::string pipeline =
        dir.write("p.textproto", shuffle + chess_pipeline("global_batch_size: 256 last_batch_policy: PARTIAL"));
    const auto dump = [&](const std::string& out, std::vector<std::string> more) {
      more.insert(more.begin(), {"dump", pipeline, "--out", dir.file(out)});
      const ToolResult result = run_tool(more);
      INFO(result.err);
      CHECK(result.code == 0);
      return load_npy(dir.file(out + "/board.npy")).bytes;
    };
    const std::string state = dir.file("state");
    fs::remove(state);
    const auto whole = dump("whole", {});
    auto parts = dump("first", {"--state", state, "--steps", "5", "--replicas", "2"});
    for (const char* part : {"second", "third"}) {
      const auto more = dump(part, {"--state", state, "--steps", "3"});
      parts.insert(parts.end(), more.begin(), more.end());
    }
    const auto rest = dump("rest", {"--state", state});
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(parts == whole);
    const json audit = json::parse(read_file(dir.file("rest/report.json"))).at("epoch_audit");
    CHECK(audit.at("why").get<std::string>().find("step 11") != std::string::npos);
    CHECK(dump("next", {"--state", state}) == dump("second-epoch", {"--epoch", "1"}));
    CHECK(run_tool({"dump", pipeline, "--out", dir.file("x"), "--state", state, "--epoch", "1"}).code == 2);
  }
}

TEST_CASE("SIGINT and SIGTERM end a run, which still prints its report") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 256"));
  for (const int number : {SIGINT, SIGTERM}) {
    Tool tool({"run", pipeline, "--json", "--set", "epoch.repeat=-1", "--step-ms", "1"});
    const ToolResult result = signalled(tool, number);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(result.json().at("interrupted") == true);
  }
}

TEST_CASE("a run that is ended by a signal has kept what it trained, and goes on there") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 10"));
  for (const int number : {SIGINT, SIGTERM}) {
    const std::string state = dir.file("state-" + std::to_string(number));
    const std::vector<std::string> arguments = {"run",     pipeline, "--json",        "--step-ms", "3",
                                                "--state", state,    "--state-every", "86400000"};
    Tool tool(arguments);
    const ToolResult result = signalled(tool, number);
    INFO(result.err);
    CHECK(result.code == 0);
    const auto trained = result.json().at("records").get<uint64_t>();
    REQUIRE(trained < 3000);
    if (trained > 0) CHECK(json::parse(read_file(state)).at("step") == trained / 10);
    std::vector<std::string> rest = arguments;
    rest[4] = "0";
    CHECK(run_tool(rest).json().at("records") == 3000 - trained);
  }
}

TEST_CASE("an interrupted dump leaves no arrays") {
  const TempDir dir;
  const std::string pipeline =
      dir.write("p.textproto", "source { files: \"" + golden("chess/main-*.tfrecord") +
                                   "\" record_type: RAW }\n"
                                   "batch { global_batch_size: 8 }\nepoch { repeat: 1000000 }\n"
                                   "output { name: \"n\" feature: \"@record\" }\n");
  Tool tool({"dump", pipeline, "--out", dir.file("out")});
  const ToolResult result = signalled(tool, SIGINT);
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK(result.err.find("interrupted") != std::string::npos);
  CHECK(entries(dir.file("out").c_str()) == 1);
  CHECK(fs::exists(dir.file("out/report.json")));
}

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
  CHECK_THAT(mixed.err, Catch::Contains("these files hold different data: every record of ") &&
                            Catch::Contains("infer a pipeline for each data set"));
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

TEST_CASE("demo makes its data, feeds it, and says what to do next") {
  const TempDir dir;
  const std::string folder = dir.file("demo");
  const ToolResult result = run_tool({"demo", "--dir", folder, "--megabytes", "2"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  for (const std::string set : {"chess", "photos", "planar", "digits", "penguins"}) {
    CHECK(result.out.find(set) != std::string::npos);
    CHECK(run_tool({"check", folder + "/" + set + ".textproto"}).code == 0);
  }
  CHECK(result.out.find("inspect --pipeline") != std::string::npos);
  CHECK(result.out.find("There is no trainer") != std::string::npos);
  CHECK(result.out.find("ready") == std::string::npos);
  CHECK(run_tool({"verify", folder + "/chess-00000-of-00004.tfrecord"}).code == 0);
  CHECK(run_tool({"demo", "--dir", folder, "--golden", dir.file("nowhere")}).code == 1);
}
