// The files of a pipeline and their indexes: stored, found again and refused; which files are counted and which are
// not.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/syscall_hooks.h"
#include "feedline/records.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/plan/reader_memory.h"
#include "io/frames.h"
#include "io/index/count_records.h"
#include "io/index/index_store.h"
#include "io/output_file.h"
#include "support/catch.h"
#include "support/own_cache.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;

namespace {

namespace fs = std::filesystem;

// Folders for data and cache. The files hold records of 1000 bytes.
struct Folder {
  TempDir dir;
  OwnCache cache{dir.file("cache")};

  std::string add(const std::string& name, int records, char first = 'a') const {
    RecordWriter writer(dir.file(name));
    for (int i = 0; i < records; i++) {
      const std::string payload(984, static_cast<char>(first + i % 20));
      writer.write(std::as_bytes(std::span(payload)));
    }
    writer.close();
    return dir.file(name);
  }
  flow::DataSet count(const std::string& index = "", const std::string& more = "", int threads = 2,
                      const std::function<void(uint64_t, uint64_t)>& progress = {}) const {
    return flow::count_data(flow::validate(parse_pipeline("source { files: 'data*' record_type: RAW " + index +
                                                              " } batch { global_batch_size: 1 } " + more,
                                                          dir.path())),
                            threads, progress);
  }
  size_t indexes() const {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(dir.path()))
      count += entry.path().string().ends_with(".feedline-index");
    return count;
  }
};

void damage(const std::string& path, uint64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put('\x01');
}

SyscallHook& hook(const std::string& name) {
  for (SyscallHook* each : SyscallHook::all())
    if (name == each->name()) return *each;
  throw std::runtime_error("no hook " + name);
}

void check_same(const flow::DataSet& a, const flow::DataSet& b) {
  CHECK(a.samples == b.samples);
  CHECK(a.digest == b.digest);
  REQUIRE(a.files.size() == b.files.size());
  for (size_t f = 0; f < a.files.size(); f++) {
    const io::FileIndex &x = a.files[f].index, &y = b.files[f].index;
    CHECK(x.records == y.records);
    CHECK(x.end == y.end);
    CHECK(x.bad.size() == y.bad.size());
    CHECK(std::equal(x.entries.begin(), x.entries.end(), y.entries.begin(), y.entries.end()));
  }
  CHECK(a.skipped.size() == b.skipped.size());
  CHECK(a.raised.size() == b.raised.size());
}

}  // namespace

TEST_CASE("what was counted once is not counted again") {
  const Folder folder;
  folder.add("data-0", 3000);
  folder.add("data-1", 2000);
  uint64_t told = 0;
  const flow::DataSet counted = folder.count("", "", 2, [&](uint64_t done, uint64_t total) {
    told = done;
    CHECK(total == 5'000'000);
  });
  CHECK(told == 5'000'000);
  CHECK(counted.counted_bytes == 5'000'000);
  CHECK(counted.warnings.empty());
  CHECK(folder.indexes() == 2);
  CHECK(fs::exists(folder.dir.file(".data-0.feedline-index")));
  // The pattern also matches the names of the indexes, which must not become data.
  const flow::DataSet found =
      folder.count("index { mode: REQUIRE }", "", 2, [](uint64_t, uint64_t) { FAIL("nothing is counted"); });
  CHECK(found.counted_bytes == 0);
  CHECK(found.warnings.empty());
  check_same(found, counted);
}

TEST_CASE("what a killed writer of an index has left is removed by a later run, and nothing else") {
  const Folder folder;
  folder.add("data-0", 3000);
  const std::string of_dead = folder.dir.write(".data-0.feedline-index.99999999-0.feedline-part", "x");
  const std::string visible = folder.dir.write("data-9.feedline-index.99999999-3.feedline-part", "x");
  const std::string no_index = folder.dir.write("data-0.99999999-0.feedline-part", "x");
  const io::OutputFile is_written(folder.dir.file(".data-1.feedline-index"));
  CHECK(folder.count().samples == 3000);
  CHECK_FALSE(fs::exists(of_dead));
  CHECK_FALSE(fs::exists(visible));
  CHECK(fs::exists(no_index));
  CHECK(std::ranges::count_if(fs::directory_iterator(folder.dir.path()), [](const auto& entry) {
          return entry.path().filename().string().starts_with(".data-1.feedline-index.");
        }) == 1);
}

TEST_CASE("only a changed file is counted again") {
  const Folder folder;
  folder.add("data-0", 3000);
  const std::string changed = folder.add("data-1", 3000);
  const flow::DataSet before = folder.count();
  damage(changed, 500);
  const flow::DataSet after = folder.count("", "errors { on_error: SKIP_RECORD }");
  CHECK(after.counted_bytes == 3'000'000);
  CHECK(after.samples == 5999);
  CHECK(after.skipped.size() == 1);
  CHECK(after.digest != before.digest);
  REQUIRE(after.warnings.size() == 1);
  CHECK(after.warnings[0].find("a file is counted again, because " + io::index_place(changed, "", 0)) == 0);
  // The index returns the bad regions, whatever the pipeline does about them.
  for (const std::string policy : {"RAISE", "SKIP_RECORD", "SKIP_FILE"}) {
    const std::string errors = "errors { on_error: " + policy + " }";
    const flow::DataSet found = folder.count("index { mode: REQUIRE }", errors);
    for (const char* name : {".data-0", ".data-1"}) fs::remove(folder.dir.file(name + std::string(".feedline-index")));
    check_same(folder.count("", errors), found);
  }
}

TEST_CASE("the digest depends on the data, not on its path or time") {
  const Folder folder, other;
  folder.add("data-0", 10);
  folder.add("data-1", 20);
  const uint64_t digest = folder.count().digest;
  CHECK(digest != 0);
  fs::copy(folder.dir.file("data-0"), other.dir.file("data-0"));
  fs::copy(folder.dir.file("data-1"), other.dir.file("data-1"));
  CHECK(other.count().digest == digest);
  fs::last_write_time(other.dir.file("data-0"), fs::file_time_type::clock::now() - std::chrono::hours(5));
  CHECK(other.count().digest == digest);
  CHECK(other.count("", "errors { on_error: SKIP_FILE }").digest == digest);
  fs::rename(other.dir.file("data-1"), other.dir.file("data-2"));
  CHECK(other.count().digest != digest);
  fs::rename(other.dir.file("data-2"), other.dir.file("data-1"));
  other.add("data-1", 20, 'b');  // the same sizes and counts, but other content
  CHECK(other.count().digest != digest);
}

TEST_CASE("indexes of small files are kept, and looked for, only where the pipeline speaks of them") {
  const Folder folder;
  folder.add("data-0", 10);
  CHECK(folder.count().counted_bytes == 10'000);
  CHECK(folder.indexes() == 0);
  CHECK(folder.count("index {}").counted_bytes == 10'000);
  CHECK(folder.indexes() == 1);
  CHECK(folder.count().counted_bytes == 10'000);
  CHECK(folder.count("index {}").counted_bytes == 0);
  CHECK(folder.count("index { stride: '100' dir: 'indexes' }").counted_bytes == 10'000);
  CHECK(fs::exists(folder.dir.file("indexes")));
  const flow::DataSet found = folder.count("index { stride: '100' dir: 'indexes' mode: REQUIRE }");
  CHECK(found.files[0].index.entries.size() == 101);
}

TEST_CASE("REQUIRE without an index says what to run") {
  const Folder folder;
  const std::string path = folder.add("data-0", 10);
  const auto message = [&](const std::string& index) -> std::string {
    try {
      folder.count(index);
    } catch (const Error& error) {
      CHECK(error.category() == Category::bad_pipeline);
      CHECK(error.place().file == path);
      return error.message();
    }
    return "";
  };
  CHECK(message("index { mode: REQUIRE }").find("there is no " + io::index_place(path, "", 0)) != std::string::npos);
  CHECK(message("index { mode: REQUIRE }").ends_with("; make the index with `feedline index " + path + "`"));
  CHECK(message("index { mode: REQUIRE dir: 'i' stride: '1KiB' }")
            .ends_with("; make the index with `feedline index " + path + " --dir " + folder.dir.file("i") +
                       " --stride 1024`"));
  folder.count("index {}");
  CHECK(message("index { mode: REQUIRE }").empty());
  folder.add("data-0", 11);
  CHECK(message("index { mode: REQUIRE }").find("was made for a file of 10000 bytes, but the file has 11000") !=
        std::string::npos);
}

TEST_CASE("the command that makes an index can be pasted into a shell") {
  const Folder folder;
  folder.add("data 0's", 10);
  CHECK_THROWS_WITH(folder.count("index { mode: REQUIRE dir: 'an index' }"),
                    Catch::Contains("`feedline index '" + folder.dir.file("data 0'\\''s") + "' --dir '" +
                                    folder.dir.file("an index") + "'`"));
}

TEST_CASE("LAZY plans for no record that is longer than readers allow") {
  const Folder folder;
  folder.add("data-0", 10);
  const flow::DataSet data =
      folder.count("compression: GZIP record_limit: '16GiB' index { mode: LAZY dir: 'indexes' }");
  CHECK(data.lazy);
  CHECK(data.largest_record() == UINT32_MAX);
  constexpr uint64_t rows = uint64_t{1} << 33;
  CHECK(flow::lazy_chunks_of(rows, UINT32_MAX) == rows + 1);  // the rows have more than 2^64 bytes
}

TEST_CASE("an index that cannot be stored anywhere is a warning") {
  const Folder folder;
  folder.add("data-0", 2000);
  folder.dir.write("cache", "a file where the folder should be");
  hook("create").fail_nth_call(1);
  const flow::DataSet data = folder.count();
  CHECK(data.samples == 2000);
  REQUIRE(data.warnings.size() == 1);
  CHECK(data.warnings[0].find("the index of ") == 0);
  CHECK(data.warnings[0].find(" cannot be stored") != std::string::npos);
  CHECK(folder.indexes() == 0);
}

TEST_CASE("one large file and many small ones are the same data") {
  const Folder folder;
  folder.add("data-0", 40'000);
  for (const int threads : {1, 2}) {
    fs::remove(folder.dir.file(".data-0.feedline-index"));
    CHECK(folder.count("", "", threads).samples == 40'000);
  }
}

TEST_CASE("counting ends when it is known that the data is refused") {
  const Folder folder;
  std::string content = frame("good");
  std::string bad = frame("");
  bad.back() ^= 1;
  for (int i = 0; i < 20'000; i++) content += bad;
  folder.dir.write("data", content);
  folder.add("data-2", 10);
  const std::string index = "index { dir: 'indexes' }";

  // Counting stops at the first of the 20,000 failures that exceeds a limit.
  const auto skipping = [&](const std::string& limits) {
    return folder.count(index, "errors { on_error: SKIP_RECORD " + limits + " }");
  };
  CHECK_THROWS_WITH(skipping("max_failures: 3"),
                    Catch::Contains("4 bad records were found, but errors.max_failures allows 3; the first: ") &&
                        Catch::Contains("data: offset 20: record 1: "));
  CHECK_THROWS_WITH(
      skipping("} memory { limit: '1MiB'"),
      Catch::Contains("memory.limit: the list of 8193 damaged places takes more than half of the limit of 1 MiB; raise "
                      "memory.limit"));
  CHECK_THROWS_WITH(folder.count(index, "memory { limit: '1MiB' }"), Catch::Contains("8193 damaged places"));
  CHECK(folder.indexes() <= 1);  // at most the index of the sound file
  // The limit is exactly the number of failures: each bad record is left out by itself.
  const flow::DataSet data = skipping("max_failures: 20000");
  CHECK(data.skipped_total == 20'000);
  CHECK(data.files[0].index.bad.size() == 20'000);
  CHECK(folder.indexes() == 2);
  // SKIP_FILE: all failures of a file count as one.
  CHECK(folder.count("index { dir: 'others' }", "errors { on_error: SKIP_FILE max_failures: 1 }").skipped_total == 1);
  folder.dir.write("data-3", bad);
  CHECK_THROWS_WITH(
      folder.count("index { dir: 'third' }", "errors { on_error: SKIP_FILE max_failures: 1 }"),
      Catch::Contains("2 bad records and files were found, but errors.max_failures allows 1; the first: ") &&
          Catch::Contains("data: offset 20: record 1: "));
}

TEST_CASE("the rate of failures is that of the records in the files, whatever part of them is chosen") {
  const Folder folder;
  damage(folder.add("data-0", 1000), 500);
  const auto count = [&](const std::string& rate) {
    return folder.count("num_shards: 100", "errors { on_error: SKIP_RECORD max_failure_rate: " + rate + " }");
  };
  CHECK(count("0.001").samples == 9);
  CHECK_THROWS_WITH(count("0.0009"), Catch::Contains("0.001 of the records are bad"));
}

TEST_CASE("shards that do not exist are warned of, and those that a pattern leaves out are not") {
  const Folder folder;
  for (const char* name : {"data.tfrecord-00000-of-00004", "data.tfrecord-00002-of-00004", "data-1-of-2.gz",
                           "data-2-of-2", "data-of-2", "data-x-of-2", "data-0-of-1"})
    folder.add(name, 3);
  CHECK(folder.count().warnings ==
        std::vector<std::string>{
            folder.dir.file("data-0-of-2.gz") +
                " does not exist, but other files of this set of 2 shards do; check whether data is missing",
            folder.dir.file("data.tfrecord-00001-of-00004") +
                " does not exist (and 1 more), but other files of this set of 4 shards do; check whether data is "
                "missing"});
  folder.add("data.tfrecord-00001-of-00004", 3);
  folder.add("data.tfrecord-00003-of-00004", 3);
  folder.add("data-0-of-2.gz", 3);
  CHECK(folder.count().warnings.empty());
  CHECK(folder.count("exclude: '*-00003-of-*'").warnings.empty());
}

TEST_CASE("dataset_info.json's shard lengths are compared") {
  const Folder folder;
  folder.add("data-train.tfrecord-00000-of-00002", 10);
  folder.add("data-train.tfrecord-00001-of-00002", 20);
  folder.add("data-validation.tfrecord-00000-of-00001", 5);
  folder.add("data-else", 5);
  const auto warnings = [&](const std::string& info) {
    folder.dir.write("dataset_info.json", info);
    return folder.count().warnings;
  };
  CHECK(warnings(R"({"name": "data", "splits": [{"name": "train", "shardLengths": ["10", "20"]},
                     {"name": "validation", "shardLengths": [5]}]})")
            .empty());
  const auto wrong =
      warnings(R"({"splits": [{"name": "train", "shardLengths": ["10", "21"]}, {"name": "validation"}]})");
  REQUIRE(wrong.size() == 1);
  CHECK(wrong[0] == folder.dir.file("data-train.tfrecord-00001-of-00002") +
                        ": the file has 20 good records, but dataset_info.json in its folder says 21");
  CHECK(warnings(R"({"splits": [{"name": "train", "shardLengths": ["1", "2", "3"]}]})").empty());  // other shards
  CHECK(warnings(R"({"splits": [{"name": "rain", "shardLengths": ["1", "2"]}]})").empty());
  CHECK(warnings("{}").empty());
  for (
      const char* broken :
      {"", "[]", "{", R"({"splits": [1]})", R"({"splits": [{"name": "train", "shardLengths": ["x"]}]})",
       R"({"splits": [{"name": "train", "filepathTemplate": "{WHAT}", "shardLengths": [1]}]})",
       R"({"splits": [{"name": "train", "filepathTemplate": "{DATASET}{DATASET}{SHARD_INDEX}", "shardLengths": [1]}]})",
       R"({"splits": [{"name": "train", "filepathTemplate": "{DATASET}", "shardLengths": [1]}]})",
       R"({"splits": [{"name": "train", "filepathTemplate": 1, "shardLengths": [1]}]})"})
    CHECK(warnings(broken).size() == 1);
  // A template so deep that a copy of it would take the whole stack.
  CHECK(warnings(R"({"splits": [{"name": "train", "shardLengths": [1], "filepathTemplate": )" +
                 std::string(500'000, '[') + std::string(500'000, ']') + "}]}")
            .size() == 1);
}

TEST_CASE("a template of dataset_info.json that is long, or has many splits, costs no time") {
  const Folder folder;
  for (int i = 0; i < 3; i++) folder.add("data" + std::string(200, 'a') + std::to_string(i), 1);
  const std::string name(90'000, 'a');
  folder.dir.write("dataset_info.json", R"({"splits": [{"name": "a", "filepathTemplate": ")" + name +
                                            R"({SHARD_INDEX}", "shardLengths": [1]}]})");
  CHECK(folder.count().warnings.empty());
  std::string splits;
  for (int i = 0; i < 2000; i++)
    splits += std::string(i > 0 ? "," : "") + R"({"name": "a", "filepathTemplate": "{DATASET}a!{SHARD_X_OF_Y}",
                                                  "shardLengths": [1]})";
  folder.dir.write("dataset_info.json", R"({"splits": [)" + splits + "]}");
  CHECK(folder.count().warnings.size() == 1);
}

TEST_CASE("dataset_info.json's shards may have other names") {
  const Folder folder;
  folder.add("data+b.train.00000.tfrecord", 10);
  folder.add("data+b.train.00001.tfrecord", 20);
  folder.add("data-x.train.tfrecord-00000-of-00001", 5);
  folder.dir.write("dataset_info.json", R"({"splits": [
    {"name": "train", "filepathTemplate": "data+b.{SPLIT}.{SHARD_INDEX}.tfrecord", "shardLengths": ["10", "21"]},
    {"name": "train", "filepathTemplate": "data-x.{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}", "shardLengths": ["6"]}]})");
  const auto warnings = folder.count().warnings;
  folder.add("data-y.00000-of-00005.tfrecord", 7);  // not of the two shards that the data set has
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0], Catch::EndsWith("00001.tfrecord: the file has 20 good records, but dataset_info.json in its "
                                          "folder says 21"));
  CHECK_THAT(warnings[1],
             Catch::EndsWith("00001: the file has 5 good records, but dataset_info.json in its folder says 6"));
}
