// verify, inspect and cat, and how the tool responds to wrong usage.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <span>

#include "feedline/records.h"
#include "golden/manifest.h"
#include "io/index/index_store.h"
#include "support/catch.h"
#include "support/skip.h"
#include "tool.h"

using namespace feedline;
using namespace feedline::test;
using nlohmann::json;

namespace {

/// Returns where the index of a file lies beside it.
std::string beside(const std::string& path) { return feedline::io::index_place(path, "", 0); }

std::string golden(const std::string& name) { return std::string(FEEDLINE_GOLDEN) + "/" + name; }

size_t lines(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

/// Requires the exit code and a message of one line that begins with the program's name.
void require_one_message(const ToolResult& result, int code) {
  INFO(result.err);
  CHECK(result.code == code);
  CHECK(lines(result.err) == 1);
  CHECK(result.err.rfind("feedline: ", 0) == 0);
}

}  // namespace

TEST_CASE("wrong usage is one line and exit code 2") {
  const std::string file = golden("chess/one.tfrecord");
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"feed"},
      {"--nonsense"},
      {"verify"},
      {"verify", "--nonsense", file},
      {"verify", "--compression", "brotli", file},
      {"index"},
      {"index", file, "--stride", "0"},
      {"index", file, "--stride", "many"},
      {"inspect", "--json", "--pipeline", file},
      {"cat", file, "--record", "-1"},
      {"cat", file, "--limit", "many"},
      {"cat", file, "--record", "1", "--limit", "2"},
      {"cat", file, file},
      {"run"},
      {"run", "x.textproto", "--replicas", "0"},
      {"run", "x.textproto", "--epochs", "0"},
      {"run", "x.textproto", "--steps", "1.5"},
      {"run", "x.textproto", "--step-ms", "-1"},
      {"run", "x.textproto", "--io", "mmap"},
      {"run", "x.textproto", "--direct", "sometimes"},
      {"run", "x.textproto", "--rank", "2", "--world-size", "2"},
      {"run", "x.textproto", "--rank", "1"},
      {"run", "x.textproto", "--meet", "node0"},
      {"run", "x.textproto", "--meet", "node0:0"},
      {"run", "x.textproto", "--meet", "node0:99999"},
      {"run", "x.textproto", "--meet-open"},
      {"run", "x.textproto", "--meet", ""},
      {"run", "x.textproto", "--meet", ":29501"},
      {"dump", "x.textproto"},
      {"dump", "x.textproto", "--out"},
      {"show", "x.textproto"},
      {"show", "x.textproto", "--out", "x.png", "--samples", "0"},
      {"stats"},
      {"stats", "x.textproto", "--records", "1.5"},
      {"stats", "x.textproto", "--records", "%"},
      {"stats", "x.textproto", "--rank", "1"},
      {"check", "x.textproto", "--json"},
      {"check", "x.textproto", "--against", "x.json", "--max-shift", "-1"},
      {"split", file},
      {"split", file, "--shards", "2"},
      {"split", file, "--out", "x"},
      {"split", file, "--out", "x", "--shards", "0"},
      {"split", file, "--out", "x", "--shards", "100000"},
      {"split", file, "--out", "x", "--shards", "2", "--shard-size", "1MB"},
      {"split", file, "--out", "x", "--shard-size", "1 furlong"},
      {"split", file, "--out", "x", "--shard-size", "0"},
      {"split", file, "--out", "x", "--shards", "2", "--seed", "1"},
      {"split", file, "--out", "x", "--shards", "2", "--name", "a/b"},
      {"split", file, "--out", "x", "--shards", "2", "--compression", "zlib"},
      {"split", file, "--out", "x", "--shards", "2", "--memory", "much"},
      {"split", file, "--advise", "--readers", "0"},
      {"convert"},
      {"convert", "parquet"},
      {"convert", "cifar10", "x.tar"},
      {"convert", "cifar10", "--out", "x"},
      {"convert", "images", "--out", "x"},
      {"convert", "images", "y", "z", "--out", "x"},
      {"convert", "images", "y", "--out", "x", "--decode", "64"},
      {"convert", "images", "y", "--out", "x", "--decode", "64", "0"},
      {"convert", "images", "y", "--out", "x", "--decode", "65535", "65535"},
      {"convert", "npy", "--out", "x"},
      {"convert", "npy", "--out", "x", "--feature", "y.npy"},
      {"convert", "csv", "--out", "x"},
      {"convert", "csv", "y.csv", "--out", "x", "--type", "a=int32"},
      {"convert", "csv", "y.csv", "--out", "x", "--shard-size", "0"},
  };
  for (const auto& arguments : wrong) {
    std::string all;
    for (const std::string& argument : arguments) all += argument + " ";
    INFO(all);
    const ToolResult result = run_tool(arguments);
    require_one_message(result, 2);
    CHECK(result.err.find("--help)") != std::string::npos);
    if (std::find(arguments.begin(), arguments.end(), "--json") == arguments.end()) {
      CHECK(result.out.empty());
    } else {
      const json error = result.json().at("error");
      CHECK(error.at("category") == "wrong_usage");
      CHECK("feedline: " + error.at("message").get<std::string>() + "\n" == result.err);
    }
  }
}

TEST_CASE("what ends a command before it has begun is JSON, too, where JSON is wanted") {
  const TempDir dir;
  const std::string missing = dir.file("missing");
  const std::string broken = dir.write("broken.textproto", "source { files: 'x' } batch { global_batch_size: 'many' }");
  const std::string empty =
      dir.write("empty.textproto", "source { files: 'nothing-*' } batch { global_batch_size: 1 }");
  struct Failing {
    std::vector<std::string> arguments;
    std::string category, file;
  };
  for (const Failing& c : std::vector<Failing>{
           {{"run", missing}, "io_error", missing},
           {{"run", broken}, "bad_pipeline", ""},  // the message states line and column
           {{"run", empty}, "bad_pipeline", ""},
           {{"run", empty, dir.path()}, "io_error", dir.path()},
           {{"check", empty, "--against", dir.path()}, "io_error", dir.path()},
           {{"split", missing, "--out", dir.file("out"), "--shards", "2"}, "io_error", missing},
           {{"split", missing, "--advise"}, "io_error", missing},
           {{"convert", "csv", missing, "--out", dir.file("out")}, "io_error", missing},
       }) {
    std::vector<std::string> arguments = c.arguments;
    arguments.push_back("--json");
    const ToolResult result = run_tool(arguments);
    INFO(arguments[0] << " " << arguments[1] << "\n" << result.out);
    require_one_message(result, 1);
    const json error = result.json().at("error");
    CHECK(error.at("category") == c.category);
    if (c.file.empty())
      CHECK(error.at("file").is_null());
    else
      CHECK(error.at("file") == c.file);
    CHECK(result.err.find(error.at("message").get<std::string>()) != std::string::npos);
    CHECK(run_tool(c.arguments).out.empty());
  }
  const ToolResult usage = run_tool({"verify", "--json"});
  require_one_message(usage, 2);
  CHECK(usage.json().at("error").at("category") == "wrong_usage");

  const auto told = [](const std::vector<std::string>& arguments) {
    const ToolResult result = run_tool(arguments);
    require_one_message(result, 2);
    return result.err;
  };
  CHECK_THAT(told({"verfy", "x"}), Catch::Contains("there is no command 'verfy'; did you mean 'verify'?"));
  CHECK_THAT(told({"run", "x.textproto", "--epoch", "3"}), Catch::Contains("--epoch; did you mean '--epochs'?"));
  CHECK_THAT(told({"convert", "csv", "people.csv"}), Catch::Contains("(see feedline convert csv --help)"));
}

TEST_CASE("help names every flag with its default") {
  const ToolResult all = run_tool({"--help"});
  CHECK(all.code == 0);
  const std::map<std::string, std::vector<std::string>> flags = {
      {"run",
       {"--set", "--replicas", "--epochs", "--steps", "--step-ms", "--replay", "--state", "--state-every", "--io",
        "--direct", "--json"}},
      {"dump", {"--out", "--epoch", "--steps", "--state", "--replicas", "--rank", "--world-size", "--meet", "--set"}},
      {"check",
       {"--set", "--replicas", "--against", "--max-shift", "--max-range", "--max-missing", "--max-new-labels",
        "--json"}},
      {"stats", {"--set", "--records", "--html", "--json", "--rank", "--world-size", "--meet"}},
      {"show", {"--out", "--samples", "--epoch", "--replicas", "--set"}},
      {"inspect", {"--compression", "--json", "--pipeline"}},
      {"verify", {"--compression", "--json"}},
      {"index", {"--dir", "--stride", "--record-limit", "--compression", "--check", "--json"}},
      {"cat", {"--record", "--limit", "--compression", "--full"}},
      {"split",
       {"--out", "--shards", "--shard-size", "--name", "--compression", "--skip-bad", "--shuffle", "--seed", "--memory",
        "--readers", "--advise", "--json"}},
      {"convert", {"cifar10", "images", "npy", "csv"}},
  };
  for (const auto& [command, expected] : flags) {
    CHECK(all.out.find("  " + command) != std::string::npos);
    const ToolResult help = run_tool({command, "--help"});
    CHECK(help.code == 0);
    for (const std::string& flag : expected) {
      INFO(command << " " << flag);
      CHECK(help.out.find(flag) != std::string::npos);
    }
  }
  const std::map<std::string, std::string> converters = {
      {"cifar10", "TAR"}, {"images", "--feature"}, {"npy", "--feature"}, {"csv", "--type"}};
  for (const auto& [name, flag] : converters) {
    INFO(name);
    CHECK(run_tool({"convert", "--help"}).out.find("  " + name) != std::string::npos);
    const ToolResult help = run_tool({"convert", name, "--help"});
    CHECK(help.code == 0);
    for (const std::string& expected : {flag, std::string("--out"), std::string("--shard-size"), std::string("--json")})
      CHECK(help.out.find(expected) != std::string::npos);
  }
  CHECK(run_tool({"run", "--help"}).out.find("(default: 1)") != std::string::npos);
  CHECK(run_tool({"--version"}).code == 0);
}

TEST_CASE("verify says what TensorFlow says of every golden file") {
  size_t cases = 0;
  for (const GoldenCase& c : golden_cases()) {
    if (c.group != "framing" && c.group != "compression" && c.group != "shards") continue;
    INFO(c.name);
    std::string compression = c.compression;
    std::transform(compression.begin(), compression.end(), compression.begin(),
                   [](char x) { return static_cast<char>(x | 0x20); });
    std::vector<std::string> arguments = {"verify", "--json", "--compression", compression};
    arguments.insert(arguments.end(), c.files.begin(), c.files.end());
    const ToolResult result = run_tool(arguments);
    const json files = result.json().at("files");
    REQUIRE(files.size() == c.files.size());
    uint64_t before = 0;  // good records before the first damage
    json first;
    for (size_t i = 0; i < files.size(); i++) {
      const json& file = files[i];
      CHECK(file.at("file") == c.files[i]);
      CHECK(file.at("compression") == compression);
      if (!first.is_null()) continue;
      if (!file.at("errors").empty()) first = file.at("errors")[0];
      before += first.is_null() ? file.at("records").get<uint64_t>() : first.at("record").get<uint64_t>();
    }
    CHECK(result.code == (first.is_null() ? 0 : 1));
    cases++;
    std::set<std::string> expected(c.error.also_acceptable.begin(), c.error.also_acceptable.end());
    if (!c.error.category.empty()) expected.insert(c.error.category);
    if (c.name == "shards/fourth_damaged") expected = {"bad_length_crc"};  // the changed bit is in a length
    uint64_t records = c.records;
    bool exact = c.error.records_exact;
    if (c.oddity.is_object() && c.oddity.contains("refuses_padding")) {
      expected.clear();
      exact = true;
    }
    if (c.oddity.is_object() && c.oddity.contains("accepts_damage")) {
      expected.insert(c.oddity["accepts_damage"].get<std::string>());
      exact = exact && c.group != "compression";  // for a cut stream TensorFlow's count depends on its buffers
    }
    if (c.oddity.is_object() && c.oddity.contains("loses_records")) {
      const json& whole = c.oddity["loses_records"];
      if (!whole.contains("also_acceptable")) records = whole["records"];
      for (const json& category : whole.value("also_acceptable", json::array()))
        expected.insert(category.get<std::string>());
    }
    if (expected.empty()) {
      CHECK(first.is_null());
    } else {
      REQUIRE(!first.is_null());
      CHECK(expected.count(first.at("category").get<std::string>()) == 1);
    }
    if (exact) CHECK(before == records);
  }
  std::printf("verify: %zu golden cases\n", cases);
  CHECK(cases == 125 + 54 + 6);
}

TEST_CASE("verify tells damage, and goes on with other files") {
  const TempDir dir;
  const std::string missing = dir.file("missing.tfrecord"), bad = golden("framing/flip_data_first_record2.tfrecord");
  const ToolResult json_result = run_tool({"verify", missing, bad, golden("framing/good.tfrecord"), "--json"});
  CHECK(json_result.code == 1);
  const json files = json_result.json().at("files");
  CHECK(files[0].at("errors")[0].at("category") == "io_error");
  CHECK(files[0].at("compression").is_null());
  CHECK(files[1].at("records") == 4);
  REQUIRE(files[1].at("errors").size() == 1);
  const json error = files[1].at("errors")[0];
  CHECK(error.at("category") == "bad_data_crc");
  CHECK(error.at("offset") == 30 + 47 + 2 * 16);
  CHECK(error.at("record") == 2);
  CHECK(error.at("skipped_bytes") == 50 + 16);
  CHECK(files[2].at("records") == 5);
  CHECK(files[2].at("payload_bytes") == 239);
  CHECK(files[2].at("errors").empty());

  const ToolResult text = run_tool({"verify", missing, bad});
  CHECK(text.code == 1);
  CHECK(lines(text.err) == 2);
  CHECK(text.err.find(bad + ": offset 109: record 2: ") != std::string::npos);
  CHECK(text.out.find("0 of 2 files sound: 4 good records") != std::string::npos);
}

TEST_CASE("whoever reads a file of another format says what it looks like") {
  const TempDir dir;
  const std::string file = dir.write("table.parquet", "PAR1" + std::string(1000, '\xa5')),
                    what = "offset 0: record 0: the checksum of the length ",
                    looks = "looks like a Parquet file; `python -m feedline convert parquet` converts it";
  const std::string pipeline =
      dir.write("p.textproto", "source { files: 'table.parquet' record_type: RAW } batch { global_batch_size: 1 }");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"verify", file},
                                                  {"inspect", file},
                                                  {"inspect", "--pipeline", file},
                                                  {"index", file},
                                                  {"cat", file},
                                                  {"run", pipeline},
                                                  {"run", pipeline, "--set", "source.index.mode=LAZY"},
                                                  {"split", file, "--out", dir.file("out"), "--shards", "1"}}) {
    const ToolResult result = run_tool(command);
    INFO(command.front() << ": " << result.err);
    CHECK(result.code == 1);
    CHECK(result.err.find(file + ": " + what) != std::string::npos);
    CHECK(result.err.find(looks) != std::string::npos);
  }
}

TEST_CASE("index makes what is missing, keeps what holds, and says what does not") {
  const TempDir dir;
  const std::string good = dir.write("good", read_file(golden("framing/good.tfrecord")));
  const std::string bad = dir.write("bad", read_file(golden("framing/flip_data_first_record2.tfrecord")));
  const std::string missing = dir.file("missing");
  const ToolResult built = run_tool({"index", good, bad, missing, "--json"});
  CHECK(built.code == 1);
  json files = built.json().at("files");
  REQUIRE(files.size() == 3);
  CHECK(files[0].at("state") == "built");
  CHECK(files[0].at("records") == 5);
  CHECK(files[0].at("errors").empty());
  CHECK(files[0].at("index") == beside(good));
  CHECK(files[0].at("index_bytes") == read_file(beside(good)).size());
  CHECK(files[0].at("refused").is_null());
  CHECK(files[1].at("state") == "built");
  CHECK(files[1].at("records") == 4);
  CHECK(files[1].at("errors").size() == 1);
  CHECK(files[2].at("state") == "none");
  CHECK(files[2].at("index").is_null());
  CHECK(files[2].at("errors")[0].at("category") == "io_error");

  // Nothing is left to do the second time, and an index among the files is not taken for data.
  const ToolResult again = run_tool({"index", good, beside(good), "--json"});
  CHECK(again.code == 0);
  REQUIRE(again.json().at("files").size() == 1);
  CHECK(again.json().at("files")[0].at("state") == "valid");
  CHECK(run_tool({"verify", good, beside(good)}).out.find("1 of 1 file sound") != std::string::npos);
  const ToolResult people = run_tool({"index", good});
  CHECK(people.out.find(good + ": 5 records") == 0);
  CHECK(people.out.find("  index " + beside(good) + ", ") != std::string::npos);
  CHECK(people.err.empty());

  // An index with another stride is not accepted.
  const json other = run_tool({"index", good, "--stride", "1KiB", "--json"}).json().at("files")[0];
  CHECK(other.at("state") == "built");
  CHECK(other.at("refused").get<std::string>().find("was made with a stride of 16384 bytes") != std::string::npos);
  CHECK(run_tool({"index", good, "--dir", dir.file("elsewhere"), "--json"})
            .json()
            .at("files")[0]
            .at("index")
            .get<std::string>()
            .rfind(dir.file("elsewhere") + "/good-", 0) == 0);
}

TEST_CASE("an index that cannot be written is no damage of the file") {
  const TempDir dir;
  const std::string good = dir.write("good", read_file(golden("framing/good.tfrecord")));
  const std::string bad = dir.write("bad", read_file(golden("framing/flip_data_first_record2.tfrecord")));
  const std::string nowhere = good + "/folder";  // a folder inside a file
  const ToolResult failed = run_tool({"index", good, bad, "--dir", nowhere, "--json"});
  CHECK(failed.code == 1);
  const json files = failed.json().at("files");
  CHECK(files[0].at("records") == 5);
  CHECK(files[0].at("errors").empty());
  CHECK(files[0].at("index").is_null());
  CHECK(files[0].at("state") == "none");
  CHECK(files[0].at("unwritten").get<std::string>().find(nowhere + ": the folder for indexes cannot be created: ") ==
        0);
  CHECK(files[1].at("errors").size() == 1);
  CHECK(files[1].at("unwritten").is_string());
  CHECK(failed.err.find(good + ": the file is sound, the index could not be written: ") != std::string::npos);
  CHECK(failed.err.find(bad + ": the index could not be written: ") != std::string::npos);
  CHECK(run_tool({"index", good, "--json"}).json().at("files")[0].at("unwritten").is_null());
}

TEST_CASE("index --check counts again") {
  const TempDir dir;
  std::string content = read_file(golden("framing/good.tfrecord"));
  const std::string file = dir.write("f", content);
  const auto time = std::filesystem::last_write_time(file);
  CHECK(run_tool({"index", "--check", file}).code == 1);
  CHECK_FALSE(std::filesystem::exists(beside(file)));
  CHECK(run_tool({"index", file}).code == 0);
  CHECK(run_tool({"index", "--check", file}).code == 0);
  // Changes the file and hides that by restoring its time.
  content[12] = static_cast<char>(content[12] ^ 1);
  dir.write("f", content);
  std::filesystem::last_write_time(file, time);
  const ToolResult changed = run_tool({"index", "--check", file, "--json"});
  CHECK(changed.code == 1);
  const json seen = changed.json().at("files")[0];
  CHECK(seen.at("state") == "valid");
  CHECK(seen.at("wrong").get<std::string>().find("the index says 5 records") == 0);
  CHECK(seen.at("errors").size() == 1);
}

TEST_CASE("index --check looks at the places from which a compressed file is inflated") {
  const TempDir dir;
  const std::string file = dir.file("f.gz");
  RecordWriter writer(file, {.compression = Compression::gzip});
  std::mt19937 random(1);
  for (int i = 0; i < 4000; i++) {
    std::string payload(1000, '\0');
    for (char& c : payload) c = static_cast<char>('a' + random() % 4);
    writer.write(std::as_bytes(std::span(payload)));
  }
  writer.close();
  CHECK(run_tool({"index", file}).code == 0);
  CHECK(run_tool({"index", "--check", file}).code == 0);
  const io::FileId id = io::stat_file(file);
  const io::FileIndex sound = io::find_index(id, {}, "").index.value();
  REQUIRE(sound.seek_points.size() >= 2);
  const auto told = [&](const io::FileIndex& index) {
    io::keep_index(index, id, id, {}, "");
    const ToolResult result = run_tool({"index", "--check", file, "--json"});
    CHECK(result.code == 1);
    return result.json().at("files")[0].at("wrong").get<std::string>();
  };
  const std::string wrong = "the index has other places from which the compressed file is inflated";
  io::SeekPointList fewer, other;
  std::vector<std::byte> window(io::deflate_window);
  for (size_t number = 1; number <= sound.seek_points.size(); number++) {
    REQUIRE(
        io::inflate_window(sound.window_of(number), window.size(), std::span<std::byte, io::deflate_window>(window)));
    const io::SeekPoint& point = sound.seek_points[number - 1].point;
    if (number > 1) fewer.add(point, window);
    window[100] ^= std::byte{1};
    other.add(point, window);
  }
  for (io::SeekPointList* list : {&fewer, &other}) {
    io::FileIndex index = sound;
    index.seek_points = list->take_entries();
    index.windows = list->take_windows();
    CHECK(told(index).find(wrong) == 0);
  }
  io::keep_index(sound, id, id, {}, "");
  CHECK(run_tool({"index", "--check", file}).code == 0);
}

TEST_CASE("index removes what a killed one has left") {
  const TempDir dir;
  const std::string file = dir.write("f", read_file(golden("framing/good.tfrecord")));
  std::filesystem::create_directory(dir.file("kept"));
  for (const std::string& left :
       {beside(file) + ".99999999-0.feedline-part", dir.file("kept/f-1.feedline-index.99999999-7.feedline-part")}) {
    std::ofstream(left) << "x";
    const bool named = left.find("kept") != std::string::npos;
    CHECK(run_tool({"index", file, "--check"}).code == 1);  // only looks
    CHECK(std::filesystem::exists(left));
    CHECK(run_tool(named ? std::vector<std::string>{"index", file, "--dir", dir.file("kept")}
                         : std::vector<std::string>{"index", file})
              .code == 0);
    CHECK_FALSE(std::filesystem::exists(left));
    std::filesystem::remove(beside(file));
  }
}

TEST_CASE("inspect agrees with TensorFlow on other programs' files") {
  if (!std::filesystem::exists(FEEDLINE_SHARED_REAL)) return skip("no folder " FEEDLINE_SHARED_REAL);
  size_t files = 0;
  const json manifest = json::parse(read_file(std::string(FEEDLINE_SHARED_REAL) + "/real.json"));
  for (const json& expected : manifest.at("files")) {
    const std::string file = expected.at("file");
    INFO(file);
    const ToolResult result = run_tool({"inspect", "--json", std::string(FEEDLINE_SHARED_REAL) + "/" + file});
    CHECK(result.code == 0);
    CHECK(result.err.empty());
    const json seen = result.json();
    const json& summary = seen.at("files")[0];
    for (const char* field : {"records", "payload_bytes", "record_min", "record_max"})
      CHECK(summary.at(field) == expected.at(field));
    CHECK(summary.at("size") == expected.at("bytes"));
    CHECK(summary.at("compression") == (expected.at("compression") == "GZIP" ? "gzip" : "none"));
    const std::string message = expected.at("message");
    const bool known = message == "Example" || message == "SequenceExample";
    CHECK(seen.at("message") == (known ? message : "other"));
    json features = seen.at("features");
    for (json& feature : features) {
      CHECK(feature.contains("length_min") == (feature.at("kind") == "bytes_list"));
      feature.erase("length_min");
      feature.erase("length_max");
    }
    CHECK(features == (known ? expected.at("features") : json::array()));
    files++;
  }
  CHECK(files >= 15);
}

TEST_CASE("a JSON document says which version it is, also one of an error") {
  const std::string file = golden("framing/flip_data_first_record2.tfrecord");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"verify", "--json", file},
                                                  {"inspect", "--json", file},
                                                  {"verify", "--json", "--no-such-flag", file}})
    CHECK(run_tool(command).json().at("feedline_json") == 1);
}

TEST_CASE("inspect finds lengths, kinds and content") {
  const json chess =
      run_tool({"inspect", "--json", golden("chess/main-00000-of-00003.tfrecord"),
                golden("chess/main-00001-of-00003.tfrecord"), golden("chess/main-00002-of-00003.tfrecord")})
          .json();
  CHECK(chess.at("message") == "Example");
  CHECK(chess.at("files").size() == 3);
  CHECK(chess.at("features") == json::parse(R"([
    {"name": "d", "kind": "bytes_list", "records": 3000, "count_min": 1, "count_max": 1, "total": 3000, "length_min": 194, "length_max": 194},
    {"name": "s", "kind": "int64_list", "records": 3000, "count_min": 1, "count_max": 1, "total": 3000}])"));

  const json sequence = run_tool({"inspect", "--json", golden("sequence/basic.tfrecord")}).json();
  CHECK(sequence.at("message") == "SequenceExample");
  std::set<std::string> names;
  for (const json& feature : sequence.at("features")) names.insert(feature.at("name").get<std::string>());
  CHECK(names.count("context/label") == 1);
  CHECK(names.count("feature_lists/xy (steps)") == 1);
  CHECK(names.count("feature_lists/xy (values)") == 1);

  const json keys = run_tool({"inspect", "--json", golden("proto/keys_not_utf8.tfrecord")}).json();
  CHECK(std::any_of(keys.at("features").begin(), keys.at("features").end(),
                    [](const json& f) { return f.contains("name_hex"); }));

  CHECK(run_tool({"inspect", golden("framing/flip_data_first_record2.tfrecord")}).code == 1);
}

TEST_CASE("inspect counts as protobuf reads: the last of equal keys and kinds") {
  const json twice = run_tool({"inspect", "--json", golden("proto/duplicate_key.tfrecord")}).json();
  for (const json& feature : twice.at("features")) CHECK(feature.at("records") <= twice.at("files")[0].at("records"));
  // 100,000 features in one record.
  CHECK(run_tool({"inspect", "--json", golden("proto/many_features.tfrecord")}).json().at("features").size() == 100000);
}

TEST_CASE("cat shows records as JSON") {
  const std::string file = golden("chess/main-00000-of-00003.tfrecord");
  const ToolResult two = run_tool({"cat", file, "--limit", "2"});
  CHECK(two.code == 0);
  CHECK(lines(two.out) == 2);
  const json first = json::parse(two.out.substr(0, two.out.find('\n')));
  CHECK(first.at("record") == 0);
  CHECK(first.at("offset") == 0);
  CHECK(first.at("message") == "Example");
  CHECK(first.at("features").at("s").at("kind") == "int64_list");
  CHECK(first.at("features").at("s").at("values").size() == 1);
  const json shortened = first.at("features").at("d").at("values")[0];
  CHECK(shortened.at("length") == 194);
  CHECK(shortened.at("base64_begin").get<std::string>().size() == 64);

  const json one = run_tool({"cat", file, "--record", "7", "--full"}).json();
  CHECK(one.at("record") == 7);
  const json bytes = one.at("features").at("d").at("values")[0];
  CHECK(bytes.at("length") == 194);
  CHECK(bytes.at("base64").get<std::string>().size() == (194 + 2) / 3 * 4);

  const ToolResult beyond = run_tool({"cat", file, "--record", "99999"});
  require_one_message(beyond, 1);
  CHECK(beyond.err.find("there is no record 99999") != std::string::npos);
  require_one_message(run_tool({"cat", golden("nothing.tfrecord")}), 1);

  const ToolResult damaged = run_tool({"cat", golden("framing/flip_data_first_record2.tfrecord")});
  require_one_message(damaged, 1);
  CHECK(lines(damaged.out) == 4);

  const json steps = run_tool({"cat", golden("sequence/basic.tfrecord"), "--record", "0"}).json();
  CHECK(steps.at("message") == "SequenceExample");
  CHECK(steps.at("context").at("name").at("values")[0] == "clip000");
  CHECK(steps.at("feature_lists").at("xy").at("count") == 7);
}

TEST_CASE("cat keeps floats, text and base64") {
  const TempDir dir;
  const std::string file = dir.file("x.tfrecord");
  RecordWriter writer(file);
  // The record: features { feature { key: "f" value { float_list { value: [0.1, nan] } } } feature { key: "t" value {
  // bytes_list { value: ["\316\261", "\377\000"] } } } }
  const std::string record = std::string("\x0a\x2b") +
                             "\x0a\x11\x0a\x01"
                             "f"
                             "\x12\x0c\x12\x0a\x0a\x08" +
                             std::string("\xcd\xcc\xcc\x3d\x00\x00\xc0\x7f", 8) +
                             "\x0a\x16\x0a\x01"
                             "t"
                             "\x12\x11\x0a\x0f\x0a\x02\xce\xb1\x0a\x02" +
                             std::string("\xff\x00", 2) +
                             "\x0a\x05"
                             "hello";
  writer.write(std::as_bytes(std::span(record)));
  const std::string raw("\x01\x02\xff", 3);
  writer.write(std::as_bytes(std::span(raw)));
  writer.close();
  const std::string out = run_tool({"cat", file}).out;
  const json example = json::parse(out.substr(0, out.find('\n')));
  CHECK(example.at("features").at("f").at("values").dump() == R"([0.1,"NaN"])");
  CHECK(example.at("features").at("t").at("values") ==
        json::parse(R"(["α", {"base64": "/wA=", "length": 2}, "hello"])"));
  const json other = json::parse(out.substr(out.find('\n')));
  CHECK(other.at("message") == "other");
  CHECK(other.at("bytes") == json::parse(R"({"base64": "AQL/", "length": 3})"));
}

TEST_CASE("a record beyond the limit is told, is not called damage, and is read with a larger limit") {
  const TempDir dir;
  const std::string file = dir.file("a.tfrecord");
  {
    RecordWriter writer(file);
    for (const size_t size : {100u, 3000u, 10u}) {
      const std::string payload(size, 'x');
      writer.write(std::as_bytes(std::span(payload)));
    }
    writer.close();
  }
  const std::vector<std::string> small = {"--record-limit", "1000"}, large = {"--record-limit", "3000"};
  const auto run = [](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool(arguments);
  };
  for (const char* command : {"verify", "inspect"}) {
    INFO(command);
    const ToolResult beyond = run({command, file}, small);
    CHECK(beyond.code == 1);
    CHECK(beyond.err.find("record_limit is 1000 bytes; if the record is not damaged, raise the limit "
                          "(source.record_limit, or --record-limit of a command)") != std::string::npos);
    CHECK(beyond.out.find("has records longer than --record-limit") != std::string::npos);
    CHECK(beyond.out.find("damaged") == std::string::npos);
    for (const auto& enough : {large, {}}) CHECK(run({command, file}, enough).code == 0);
  }
  CHECK(lines(run({"cat", file}, large).out) == 3);
  CHECK(run({"cat", file}, small).code == 1);
  CHECK(run({"split", file, "--shards", "1", "--out", dir.file("refused")}, small).code == 1);
  CHECK(run({"split", file, "--shards", "1", "--out", dir.file("split")}, large).code == 0);
  CHECK(run({"split", file, "--shards", "1", "--out", dir.file("skipped"), "--skip-bad"}, small).code == 0);
  const ToolResult other = run_tool({"split", file, "--shards", "1", "--out", dir.file("split")});
  CHECK(other.code == 1);
  CHECK(other.err.find("--record-limit was 3000, and is not given now") != std::string::npos);
  const ToolResult pipeline = run({"inspect", "--pipeline", file}, small);
  CHECK(pipeline.code == 1);
  CHECK(pipeline.out.empty());
  CHECK(pipeline.err.find("has records that are longer than --record-limit, 1000 B") != std::string::npos);
}

TEST_CASE("records of more than 256 MiB are inspected, and fed by the pipeline that is inferred") {
  const TempDir dir;
  const std::string file = dir.file("a.tfrecord");
  constexpr size_t size = (256u << 20) + 1;
  {
    RecordWriter writer(file);
    writer.write(std::vector<std::byte>(size));
    writer.close();
  }
  CHECK(run_tool({"inspect", "--pipeline", file}).code == 1);
  const ToolResult inferred = run_tool({"inspect", "--pipeline", file, "--record-limit", "300MiB"});
  INFO(inferred.err);
  REQUIRE(inferred.code == 0);
  const std::string pipeline = dir.write("p.textproto", inferred.out);
  CHECK(inferred.out.find("record_limit: \"268435457\"") != std::string::npos);
  CHECK(inferred.out.find("SKIP_RECORD") == std::string::npos);
  const ToolResult check = run_tool({"check", pipeline, "--records", "0", "--set", "memory.limit=16GiB"});
  INFO(check.err);
  CHECK(check.code == 0);
}

TEST_CASE("names of files and messages cannot command a terminal") {
  const TempDir dir;
  const std::string file = dir.file("a\x1b]0;owned\x07.tfrecord"), shown = "a\\x1b]0;owned\\x07.tfrecord";
  const std::string bytes = read_file(golden("chess/one.tfrecord"));
  const std::string pipeline = dir.write("p.textproto", "source { files: '" + dir.file("a*.tfrecord") +
                                                            "' } feature { name: 's' dtype: INT64 } batch { "
                                                            "global_batch_size: 1 }");
  for (const bool sound : {true, false}) {
    std::ofstream(file, std::ios::binary) << (sound ? bytes : bytes.substr(0, bytes.size() - 1));
    const std::string out = dir.file(sound ? "split" : "refused");
    const std::vector<std::string> commands[] = {
        {"verify", file},    {"inspect", file}, {"index", file, "--dir", dir.file("index")},   {"cat", file},
        {"check", pipeline}, {"run", pipeline}, {"split", file, "--shards", "1", "--out", out}};
    for (const std::vector<std::string>& arguments : commands) {
      const ToolResult result = run_tool(arguments);
      const std::string all = result.out + result.err;
      INFO(arguments[0] << ": " << all);
      CHECK(all.find_first_of("\x1b\x07") == std::string::npos);
      if (!sound) CHECK(all.find(shown) != std::string::npos);
    }
  }
}

TEST_CASE("names of features cannot command a terminal, and stay in their column") {
  const TempDir dir;
  const std::string file = dir.file("x.tfrecord");
  {
    RecordWriter writer(file);
    // The record: features { feature { key: "a\rb\n" value { int64_list { value: [7] } } } }
    const std::string record =
        "\x0a\x0f\x0a\x0d\x0a\x04"
        "a\rb\n"
        "\x12\x05\x1a\x03\x0a\x01\x07";
    writer.write(std::as_bytes(std::span(record)));
    writer.close();
  }
  const ToolResult result = run_tool({"inspect", file});
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::Contains("\nfeature       kind ") && Catch::Contains("\nhex 610d620a  int64_list "));
}

TEST_CASE("messages that nobody can read do not keep the JSON back") {
  const TempDir dir;
  const std::string damaged = golden("framing/flip_data_first_record2.tfrecord"), out = dir.file("out");
  for (const std::string& arguments : {"verify --json " + damaged, "verify --json --nonsense " + damaged}) {
    INFO(arguments);
    const std::string command = std::string(FEEDLINE_TOOL) + " " + arguments + " > " + out + " 2> /dev/full";
    const int status = std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == (arguments.find("--nonsense") == std::string::npos ? 1 : 2));
    CHECK(json::parse(read_file(out)).at("feedline_json") == 1);
  }
}

TEST_CASE("help and version that cannot be written are a failure") {
  for (const char* arguments : {"--help", "--version", "run --help"}) {
    const std::string command = std::string(FEEDLINE_TOOL) + " " + arguments + " > /dev/full 2> /dev/null";
    const int status = std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 1);
  }
}
