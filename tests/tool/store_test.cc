// The tool on files that a registered source has: each command does what it does with local files.
#include <filesystem>

#include "support/catch.h"
#include "support/own_cache.h"
#include "tool.h"

using namespace feedline;
using namespace feedline::test;

namespace {

const std::string local = std::string(FEEDLINE_GOLDEN) + "/", stored = "memory://";

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

/// Runs the tool with each `*` in the arguments replaced by a place, and returns what it printed, of local files.
ToolResult run_at(const std::string& place, std::vector<std::string> arguments) {
  for (std::string& argument : arguments) replace_all(argument, "*", place);
  setenv("FEEDLINE_MEMORY", local.c_str(), 1);
  ToolResult result = run_tool(arguments);
  replace_all(result.out, stored, local);
  replace_all(result.err, stored, local);
  return result;
}

const std::string captions = R"text(
source { files: "*captions/captions.tfrecord" index { dir: "INDEXES" mode: MODE } }
feature { name: "image" dtype: BYTES }
output { name: "features" dtype: FLOAT32 feature: "image"
         lookup { table: "*captions/img_feats.npy" keys_file: "*captions/names.txt" } }
output { name: "record" feature: "@record" }
batch { global_batch_size: 20 }
shuffle { mode: GLOBAL }
)text";

/// Writes the pipeline for a place, with an index.mode, and returns its path.
std::string pipeline_at(const TempDir& folder, const std::string& place, const std::string& mode) {
  std::string text = captions;
  replace_all(text, "*", place);
  replace_all(text, "INDEXES", folder.file("indexes"));
  replace_all(text, "MODE", mode);
  return folder.write(place == stored ? "stored.textproto" : "local.textproto", text);
}

}  // namespace

TEST_CASE("commands that read files do the same with those of a store") {
  const TempDir folder;
  const OwnCache cache(folder.path());
  const std::vector<std::vector<std::string>> commands = {
      {"verify", "--json", "*chess/main-00000-of-00003.tfrecord", "*captions/captions.tfrecord"},
      {"verify", "--json", "*captions/names.txt"},  // no records
      {"verify", "*captions/is_not_there"},
      {"inspect", "--json", "*chess/main-00000-of-00003.tfrecord"},
      {"inspect", "--pipeline", "*chess/main-00000-of-00003.tfrecord", "*chess/main-00001-of-00003.tfrecord"},
      {"cat", "*captions/captions.tfrecord", "--limit", "3"},
  };
  for (const std::vector<std::string>& command : commands) {
    CAPTURE(command);
    const ToolResult wanted = run_at(local, command), result = run_at(stored, command);
    CHECK(result.code == wanted.code);
    CHECK(result.out == wanted.out);
    CHECK(result.err == wanted.err);
  }
}

TEST_CASE("a pipeline of files and tables in a store is fed as one of local files") {
  const TempDir folder;
  const OwnCache cache(folder.path());
  const std::string from_store = pipeline_at(folder, stored, "BUILD");
  const auto dump = [&](const std::string& pipeline, const std::string& out) {
    const ToolResult result = run_at("", {"dump", pipeline, "--out", folder.file(out)});
    INFO(result.err);
    REQUIRE(result.code == 0);
    return read_file(folder.file(out + "/features.npy")) + read_file(folder.file(out + "/record.npy"));
  };
  const std::string wanted = dump(pipeline_at(folder, local, "BUILD"), "local");
  CHECK(wanted.size() > 120 * 16 * 4);
  CHECK(dump(from_store, "stored") == wanted);
  for (const char* command : {"check", "stats"}) {
    const ToolResult result = run_at("", {command, from_store});
    INFO(result.err);
    CHECK(result.code == 0);
  }
}

TEST_CASE("an index that was made of a file in a store is used") {
  const TempDir folder;
  const OwnCache cache(folder.path());
  const std::string require = pipeline_at(folder, stored, "REQUIRE");
  CHECK(run_at("", {"check", require}).code == 1);
  const ToolResult made = run_at(stored, {"index", "*captions/captions.tfrecord", "--dir", folder.file("indexes")});
  INFO(made.err);
  CHECK(made.code == 0);
  const ToolResult checked = run_at("", {"check", require});
  INFO(checked.err);
  CHECK(checked.code == 0);
}

TEST_CASE("files that lie in no folder of a store are matched by a pattern") {
  const TempDir folder;
  const OwnCache cache(folder.path());
  setenv("FEEDLINE_MEMORY", (local + "chess").c_str(), 1);
  const ToolResult result =
      run_tool({"inspect", "--pipeline", "memory://main-00000-of-00003.tfrecord",
                "memory://main-00001-of-00003.tfrecord", "memory://main-00002-of-00003.tfrecord"});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::Contains("files: \"memory://main-*-of-00003.tfrecord\""));
}

TEST_CASE("where there is no folder for the index of a file in a store, that is said") {
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  unsetenv("HOME");
  unsetenv("XDG_CACHE_HOME");
  for (const char* check : {"", "--check"}) {
    std::vector<std::string> command = {"index", "*captions/captions.tfrecord"};
    if (*check) command.push_back(check);
    const ToolResult result = run_at(stored, command);
    INFO(result.out << result.err);
    CHECK(result.code == 1);
    CHECK_THAT(result.out + result.err, Catch::Contains("there is no folder in which its index can be stored"));
  }
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
}

TEST_CASE("records of a store are split into local files") {
  const TempDir folder;
  const OwnCache cache(folder.path());
  for (const auto& [place, out] : {std::pair(local, "local"), std::pair(stored, "stored")}) {
    const ToolResult result =
        run_at(place, {"split", "*captions/captions.tfrecord", "--out", folder.file(out), "--shards", "3"});
    INFO(result.err);
    REQUIRE(result.code == 0);
  }
  size_t same = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.file("local"))) {
    if (entry.path().extension() != ".tfrecord") continue;
    const std::string other = folder.file("stored/" + entry.path().filename().string());
    same += read_file(entry.path().string()) == read_file(other);
  }
  CHECK(same == 3);
}
