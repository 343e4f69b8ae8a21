// feedline dump: the arrays of a feed.
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "golden/manifest.h"
#include "pipelines.h"
#include "support/catch.h"
#include "support/process.h"
#include "tool.h"

using namespace feedline;
using namespace feedline::test;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

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
    CHECK(report.at("dropped_samples") == 0);
    CHECK(report.at("errors").empty());
    CHECK(report.at("files").size() == 3);
    if (dump.has("valid")) {
      CHECK(report.at("filler_rows") == 72);
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
  CHECK(dropped.report().at("dropped_samples") == 3000 - 2048);
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

TEST_CASE("dump says why it failed even if its report cannot be written") {
  const TempDir dir;
  const std::string pipeline =
      dir.write("p.textproto", chess_pipeline("global_batch_size: 8") + " epoch { repeat: -1 }");
  fs::create_directories(dir.file("out/report.json"));
  const ToolResult result = run_tool({"dump", pipeline, "--out", dir.file("out")});
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Catch::Contains("out/report.json: ") && Catch::Contains("so the epoch never ends"));
}

TEST_CASE("dump takes some steps of an epoch that never ends") {
  const Dump dump(chess_pipeline("global_batch_size: 1024") + " epoch { repeat: -1 }", {"--steps", "4"});
  INFO(dump.result.err);
  REQUIRE(dump.result.code == 0);
  CHECK(dump.report().at("samples") == 4096);
  CHECK(dump.array("flags").shape == std::vector<int64_t>{4096, 10});
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

TEST_CASE("what a killed dump or show has left is removed by the next one, and nothing else") {
  const TempDir dir;
  const std::string pipeline = dir.write(
      "p.textproto", "source { files: '" + golden("images/digits_raw.tfrecord") +
                         "' range: '0:8' } batch { global_batch_size: 8 } feature { name: 'image' dtype: BYTES length: "
                         "64 } output { name: 'image' feature: 'image' decode_raw { shape: [8, 8, 1] } }");
  const std::string out = dir.file("out"), sheet = dir.file("sheet.png");
  fs::create_directory(out);
  for (const char* left :
       {"out/image.npy.12-0.feedline-part", "out/old.npy.12-7.feedline-part", "out/report.json.3-1.feedline-part",
        "out/data.tfrecord.12-0.feedline-part", "sheet.png.12-0.feedline-part", "other.png.12-0.feedline-part"})
    dir.write(left, "half");
  REQUIRE(run_tool({"dump", pipeline, "--out", out}).code == 0);
  REQUIRE(run_tool({"show", pipeline, "--out", sheet}).code == 0);
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir.path()))
    if (entry.path().string().ends_with("-part")) files.insert(entry.path().filename());
  CHECK(files == std::set<std::string>{"data.tfrecord.12-0.feedline-part", "other.png.12-0.feedline-part"});
}

TEST_CASE("a limit of file sizes is an error, and leaves no half of a file") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 100"));
  const std::string csv = dir.write("x.csv", "a\n" + std::string(8000, '1') + "\n");
  const auto handler = std::signal(SIGXFSZ, SIG_DFL);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit little = before;
  little.rlim_cur = 4096;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"dump", pipeline, "--out", dir.file("dumped")},
        {"convert", "csv", csv, "--out", dir.file("converted")},
        {"split", golden("chess/main-00000-of-00003.tfrecord"), "--out", dir.file("split"), "--shards", "1"}}) {
    REQUIRE(setrlimit(RLIMIT_FSIZE, &little) == 0);
    const ToolResult result = run_tool(arguments);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    INFO(arguments[0] << ": " << result.err);
    CHECK(result.code == 1);
    CHECK(result.err.find("File too large") != std::string::npos);
  }
  std::signal(SIGXFSZ, handler);
  for (const auto& entry : fs::recursive_directory_iterator(dir.path()))
    CHECK_FALSE(entry.path().string().ends_with("-part"));
}
