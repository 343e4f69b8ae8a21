// feedline split: every record is written once, in the promised order, whatever fails on the way.
#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "base/syscall_hooks.h"
#include "feedline/records.h"
#include "io/frames.h"
#include "io/index/index_store.h"
#include "support/catch.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "tool.h"
#include "tool/reshard/shard_advice.h"
#include "tool/reshard/shuffle_key.h"
#include "tool/reshard/split_run.h"

using namespace feedline;
using namespace feedline::test;
using tool::SplitOptions;

namespace {

/// Returns where the index of a file lies beside it.
std::string beside(const std::string& path) { return feedline::io::index_place(path, "", 0); }

namespace fs = std::filesystem;

constexpr uint64_t gib = uint64_t{1} << 30;

std::string write_records(const std::string& path, const std::vector<std::string>& records, bool gzip = false) {
  RecordWriter writer(path, {.compression = gzip ? Compression::gzip : Compression::none});
  for (const std::string& record : records) writer.write(bytes_of(record));
  writer.close();
  return path;
}

std::vector<std::string> read_records(const std::string& path) {
  RecordReader reader(path);
  std::vector<std::string> records;
  Record record;
  for (ReadResult result; (result = reader.next(record)) != ReadResult::end;) {
    REQUIRE(result == ReadResult::record);
    records.emplace_back(text_of(record.payload));
  }
  return records;
}

/// Files in `dir` and their records, each of which contains its number.
struct Inputs {
  std::vector<std::string> files, records;

  Inputs(const TempDir& dir, std::mt19937& random, size_t most_files, size_t most_records, bool gzip) {
    for (size_t f = 0, count = 1 + random() % most_files; f < count; f++) {
      std::vector<std::string> mine(random() % 4 == 0 ? 0 : random() % (most_records + 1));
      for (std::string& record : mine) {
        record = std::to_string(records.size()) + ":" + random_text(random() % 8 == 0 ? 3000 : random() % 60, random);
        records.push_back(record);
      }
      files.push_back(write_records(dir.file("in-" + std::to_string(f)), mine, gzip && random() % 2));
    }
  }
};

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename()] = entry.is_regular_file() ? read_file(entry.path()) : "a folder";
  return files;
}

std::vector<std::string> shard_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& [name, content] : contents(folder))
    if (name[0] != '.') files.push_back(name);
  return files;
}

std::vector<std::string> all_records(const std::string& folder) {
  std::vector<std::string> records;
  for (const std::string& name : shard_files(folder))
    for (const std::string& record : read_records(folder + "/" + name)) records.push_back(record);
  return records;
}

SplitOptions into(uint64_t shards) {
  SplitOptions options;
  options.name = "out";
  options.shards = shards;
  return options;
}

SplitOptions shuffled(uint64_t shards, uint64_t seed) {
  SplitOptions options = into(shards);
  options.shuffle = true;
  options.seed = seed;
  return options;
}

/// Returns the message of the Error that a call throws.
template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("in order: the shards, read one after another, are the inputs") {
  std::mt19937 random(1);
  for (int round = 0; round < 60; round++) {
    const TempDir dir;
    const Inputs inputs(dir, random, 5, 200, round % 3 == 0);
    SplitOptions options = into(1 + random() % (inputs.records.size() + 5));
    options.gzip = round % 4 == 0;
    const std::string out = dir.file("out");
    const tool::SplitResult result = tool::run_split(options, inputs.files, out, gib);
    INFO("round " << round << ": " << inputs.records.size() << " records, " << *options.shards << " shards");
    REQUIRE(result.records == inputs.records.size());
    REQUIRE(result.files == shard_files(out));
    REQUIRE(result.files.size() == *options.shards);
    REQUIRE(all_records(out) == inputs.records);
    for (uint64_t i = 0; i < *options.shards; i++) {
      REQUIRE(result.files[i] == tool::shard_name("out", i, *options.shards, options.gzip));
      const uint64_t n = inputs.records.size(), begin = i * n / *options.shards, end = (i + 1) * n / *options.shards;
      REQUIRE(read_records(out + "/" + result.files[i]).size() == end - begin);
    }
  }
}

TEST_CASE("shuffled: every record once, in an order that only seed and data decide") {
  std::mt19937 random(2);
  for (int round = 0; round < 25; round++) {
    const TempDir dir;
    const Inputs inputs(dir, random, 4, 300, round % 3 == 0);
    const uint64_t seed = random(), shards = 1 + random() % 20;
    tool::run_split(shuffled(shards, seed), inputs.files, dir.file("a"), gib);
    const std::vector<std::string> order = all_records(dir.file("a"));
    INFO("round " << round << ": " << inputs.records.size() << " records, " << shards << " shards");
    auto sorted = order, expected = inputs.records;
    std::sort(sorted.begin(), sorted.end());
    std::sort(expected.begin(), expected.end());
    REQUIRE(sorted == expected);
    if (order.size() > 20) CHECK(order != inputs.records);
    CHECK(!fs::exists(dir.file("a/.out.split")));

    // The order is that of the keys. It stays the same for another number of shards, for several buckets in a shard,
    // and for buckets that do not fit in memory.
    std::vector<size_t> by_key(order.size());
    for (size_t i = 0; i < by_key.size(); i++) by_key[i] = i;
    const tool::ShuffleKeys keys(seed);
    std::sort(by_key.begin(), by_key.end(), [&](size_t a, size_t b) { return keys(a) < keys(b); });
    for (size_t i = 0; i < by_key.size(); i++) REQUIRE(order[i] == inputs.records[by_key[i]]);
    tool::run_split(shuffled(1 + random() % 400, seed), inputs.files, dir.file("b"), gib);
    REQUIRE(all_records(dir.file("b")) == order);
    tool::run_split(shuffled(2, seed), inputs.files, dir.file("c"), 2 << 20);
    REQUIRE(all_records(dir.file("c")) == order);
    tool::run_split(shuffled(shards, seed), inputs.files, dir.file("d"), 1000);
    REQUIRE(contents(dir.file("d")).size() == contents(dir.file("a")).size());
    REQUIRE(all_records(dir.file("d")) == order);
    if (order.size() > 20) {
      tool::run_split(shuffled(shards, seed + 1), inputs.files, dir.file("e"), gib);
      CHECK(all_records(dir.file("e")) != order);
    }
  }
}

TEST_CASE("small memory takes many buckets") {
  const TempDir dir;
  std::mt19937 random(3);
  std::vector<std::string> records;
  for (int i = 0; i < 3000; i++) records.push_back(std::to_string(i) + random_text(4000, random));
  const std::string in = write_records(dir.file("in"), records);
  tool::run_split(shuffled(3, 5), {in}, dir.file("a"), gib);
  tool::run_split(shuffled(3, 5), {in}, dir.file("b"), 1 << 20);  // at least 13 buckets, each fits in memory
  CHECK(all_records(dir.file("a")) == all_records(dir.file("b")));
}

TEST_CASE("every order is as likely") {
  // 4 records have 24 orders. Chi-squared with 23 degrees of freedom exceeds 60 once in 30,000 times, and the seeds are
  // fixed.
  std::map<std::vector<int>, int> seen;
  const int rounds = 24 * 400;
  for (int seed = 0; seed < rounds; seed++) {
    std::vector<int> order = {0, 1, 2, 3};
    const tool::ShuffleKeys keys(static_cast<uint64_t>(seed));
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return keys(static_cast<uint64_t>(a)) < keys(static_cast<uint64_t>(b)); });
    seen[order]++;
  }
  double chi = 0;
  for (const auto& [order, count] : seen) chi += (count - 400.0) * (count - 400.0) / 400.0;
  CHECK(seen.size() == 24);
  CHECK(chi < 60);
}

TEST_CASE("keys at ranks are those of a sort") {
  for (const uint64_t records : {1u, 2u, 255u, 512u, 70'001u, 300'000u}) {
    const tool::ShuffleKeys keys(records);
    std::vector<uint64_t> all, ranks;
    for (uint64_t r = 0; r < records; r++) all.push_back(keys(r));
    std::sort(all.begin(), all.end());
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
    for (uint64_t i = 0; i < 100; i++) ranks.push_back(i * records / 100);
    const std::vector<uint64_t> found = tool::keys_at(keys, records, ranks);
    REQUIRE(found.size() == ranks.size());
    for (size_t i = 0; i < ranks.size(); i++) REQUIRE(found[i] == all[ranks[i]]);
  }
  CHECK(tool::keys_at(tool::ShuffleKeys(1), 0, {}).empty());
}

TEST_CASE("nothing to split") {
  const TempDir dir;
  const std::string in = write_records(dir.file("in"), {}), gz = write_records(dir.file("in.gz"), {}, true);
  for (const bool shuffle : {false, true}) {
    SplitOptions options = into(3);
    options.shuffle = shuffle;
    const std::string out = dir.file(shuffle ? "shuffled" : "in order");
    CHECK(tool::run_split(options, {in, gz}, out, gib).files.size() == 3);
    CHECK(all_records(out).empty());
  }
  SplitOptions by_size = into(1);
  by_size.shards.reset();
  by_size.shard_bytes = 1000;
  CHECK(tool::run_split(by_size, {in}, dir.file("by size"), gib).files ==
        std::vector<std::string>{"out-00000-of-00001.tfrecord"});
}

TEST_CASE("as many shards as their size says") {
  const TempDir dir;
  const std::string in = write_records(dir.file("in"), std::vector<std::string>(100, std::string(84, 'x')));
  SplitOptions options;
  options.name = "x";
  options.shard_bytes = 1000;
  CHECK(tool::run_split(options, {in}, dir.file("a"), gib).shards == 10);
  options.shard_bytes = 999;
  CHECK(tool::run_split(options, {in}, dir.file("b"), gib).shards == 11);
  options.shard_bytes = 1 << 30;
  CHECK(tool::run_split(options, {in}, dir.file("c"), gib).shards == 1);
}

TEST_CASE("bad records are refused, or left out with exact counts") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int i = 0; i < 50; i++) records.push_back("record " + std::to_string(i));
  const std::string in = write_records(dir.file("in"), records);
  std::string bytes = read_file(in);
  const size_t payload = 10 * 24 + 7 * 25 + 12;  // where the payload of record 17 begins
  bytes[payload + 3] ^= 3;
  dir.write("in", bytes);
  const ToolResult refused = run_tool({"split", in, "--out", dir.file("a"), "--shards", "7"});
  CHECK(refused.code == 1);
  CHECK(contains(refused.err, in + ": offset " + std::to_string(payload - 12) + ": record 17: "));
  CHECK(contains(refused.err, "--skip-bad"));
  CHECK(fs::is_empty(dir.file("a")));

  records.erase(records.begin() + 17);
  for (const bool shuffle : {false, true}) {
    const std::string out = dir.file(shuffle ? "c" : "b");
    std::vector<std::string> arguments = {"split", in, "--out", out, "--shards", "7", "--skip-bad", "--json"};
    if (shuffle) arguments.push_back("--shuffle");
    const ToolResult result = run_tool(arguments);
    INFO(result.err);
    REQUIRE(result.code == 0);
    CHECK(contains(result.err, "record 17"));
    CHECK(result.json().at("records") == 49);
    REQUIRE(result.json().at("errors").size() == 1);
    CHECK(result.json().at("errors")[0].at("record") == 17);
    CHECK(result.json().at("errors")[0].at("skipped_bytes") == 25);
    auto got = all_records(out), expected = records;
    if (shuffle) std::sort(got.begin(), got.end());
    if (shuffle) std::sort(expected.begin(), expected.end());
    CHECK(got == expected);
  }
}

TEST_CASE("another job's folder is refused with what differs") {
  const TempDir dir;
  std::mt19937 random(4);
  const Inputs inputs(dir, random, 1, 50, false);
  const std::string in = inputs.files[0], out = dir.file("out");
  const std::string more = write_records(dir.file("more"), {"x"});
  tool::run_split(shuffled(4, 7), {in}, out, gib);
  const auto before = contents(out);
  const auto again = [&](const SplitOptions& options, const std::vector<std::string>& files) {
    return error_of([&] { tool::run_split(options, files, out, gib); });
  };
  CHECK(again(shuffled(4, 7), {in}).empty());
  CHECK(contains(again(shuffled(5, 7), {in}), "--shards was 4, and is 5 now"));
  CHECK(contains(again(shuffled(4, 8), {in}), "--seed was 7, and is 8 now"));
  CHECK(contains(again(into(4), {in}), "--shuffle was given, and is not given now"));
  CHECK(contains(again(shuffled(4, 7), {more}), "input 1 was"));
  CHECK(contains(again(shuffled(4, 7), {in, more}), "there was 1 input, and now there are 2"));
  CHECK(contents(out) == before);
  // A job of another name may use the same folder.
  SplitOptions other = into(1);
  other.name = "other";
  CHECK(tool::run_split(other, {more}, out, gib).files.size() == 1);
  // An input that has been written to.
  fs::last_write_time(in, fs::last_write_time(in) + std::chrono::seconds(1));
  CHECK(contains(again(shuffled(4, 7), {in}), "has changed since then"));
  std::ofstream(in, std::ios::app) << "x";
  CHECK(contains(again(shuffled(4, 7), {in}), "bytes, and has"));
  // A job file that holds no job.
  std::ofstream(out + "/.out.split.json") << "{}";
  CHECK(contains(again(shuffled(4, 7), {more}), "not the job file of a split, or is damaged"));
}

TEST_CASE("a job file whose numbers cannot be is refused") {
  const TempDir dir;
  const std::string in = write_records(dir.file("in"), {"a", "b", "c"}), out = dir.file("out");
  tool::run_split(shuffled(2, 7), {in}, out, gib);
  const std::string path = out + "/.out.split.json";
  std::string text;
  std::getline(std::ifstream(path), text);
  const auto refusal = [&](const std::string& part, const std::string& other) {
    const size_t at = text.find(part);
    REQUIRE(at != std::string::npos);
    std::ofstream(path) << std::string(text).replace(at, part.size(), other);
    return error_of([&] { tool::run_split(shuffled(2, 7), {in}, out, gib); });
  };
  REQUIRE(refusal("", "").empty());
  for (const auto& [part, other] :
       {std::pair(R"("shards":2)", R"("shards":0)"), std::pair(R"("shards":2)", R"("shards":200000)"),
        std::pair(R"("records":3)", R"("records":4)"), std::pair(R"("records":3)", R"("records":18446744073709551615)"),
        std::pair(R"("marks":[[0,0]])", R"("marks":[])"), std::pair(R"("marks":[[0,0]])", R"("marks":[[0,3]])"),
        std::pair(R"("marks":[[0,0]])", R"("marks":[[0,0],[16,0]])"),
        std::pair(R"("compression":1)", R"("compression":0)"), std::pair(R"("compression":1)", R"("compression":257)"),
        std::pair(R"("shards_per_unit":2)", R"("shards_per_unit":0)"),
        std::pair(R"("buckets_per_unit":1)", R"("buckets_per_unit":9)"), std::pair(R"("bytes":[)", R"("bytes":[1,)")}) {
    INFO(part << " becomes " << other);
    CHECK(contains(refusal(part, other), "is a damaged job file of a split; check --out and --name"));
  }
  CHECK(contains(refusal(R"("records":3)", R"("records":-3)"), "not the job file of a split, or is damaged"));
  CHECK(contains(refusal(R"("records":3)", R"("records":1e300)"), "not the job file of a split, or is damaged"));
  // A value so deep that a copy of it would take the whole stack.
  CHECK(contains(refusal(R"("bad":[)", R"("bad":[)" + std::string(500'000, '[') + std::string(500'000, ']')),
                 "nested too deep"));
}

TEST_CASE("split leaves files of others alone") {
  const TempDir dir;
  const std::string in = write_records(dir.file("in-00000-of-00001.tfrecord"), {"a", "b"});
  SplitOptions options = into(1);
  options.name = "in";
  CHECK(contains(error_of([&] { tool::run_split(options, {in}, dir.path(), gib); }), "exists already"));
  CHECK(read_records(in) == std::vector<std::string>{"a", "b"});
  CHECK(!fs::exists(dir.file(".in.split.json")));
  CHECK(contains(error_of([&] { tool::run_split(into(1), {dir.file("none")}, dir.file("x"), gib); }), "No such file"));
  CHECK(contains(error_of([&] { tool::run_split(into(1), {in}, in, gib); }), "cannot be created"));

  // Another process is writing.
  const int folder = open(dir.path().c_str(), O_RDONLY | O_DIRECTORY);
  REQUIRE(flock(folder, LOCK_EX) == 0);
  CHECK(contains(error_of([&] { tool::run_split(into(1), {in}, dir.path(), gib); }),
                 "another feedline process is writing to this folder"));
  close(folder);
}

TEST_CASE("whichever call fails: whole shards or none, and the next run ends as if nothing had been") {
  const TempDir data;
  std::mt19937 random(5);
  std::vector<std::string> records;
  for (int i = 0; i < 60; i++) records.push_back(std::to_string(i) + random_text(5000, random));
  const std::vector<std::string> inputs = {
      write_records(data.file("a"), {records.begin(), records.begin() + 40}),
      write_records(data.file("b.gz"), {records.begin() + 40, records.end()}, true)};
  size_t failures = 0;
  for (const bool shuffle : {false, true}) {
    SplitOptions options = into(3);
    options.shuffle = shuffle;
    const std::string reference_folder = data.file(shuffle ? "shuffled" : "in order");
    tool::run_split(options, inputs, reference_folder, 200'000);
    const auto reference = contents(reference_folder);
    for (SyscallHook* hook : SyscallHook::all()) {
      const bool harmless = contains(hook->name(), "short") || contains(hook->name(), "interrupted");
      for (int64_t n = 1;; n++) {
        INFO(hook->name() << " " << n << (shuffle ? " shuffled" : ""));
        const TempDir dir;
        const std::string out = dir.file("out");
        hook->fail_nth_call(n);
        const std::string message = error_of([&] { tool::run_split(options, inputs, out, 200'000); });
        const bool fired = !hook->pending();
        hook->fail_nth_call(0);
        REQUIRE(message.empty() == (!fired || harmless));
        if (!message.empty()) {
          failures++;
          for (const auto& [name, content] : contents(out)) {
            if (name[0] == '.') continue;
            CHECK(!contains(name, "-part"));
            REQUIRE(content == reference.at(name));
          }
          tool::run_split(options, inputs, out, 200'000);
        }
        auto result = contents(out), expected = reference;
        REQUIRE(result.size() == expected.size());
        for (const auto& [name, content] : result)
          if (name[0] != '.') REQUIRE(content == expected.at(name));
        if (!fired) break;
      }
    }
  }
  std::printf("split: %zu failing calls\n", failures);
  CHECK(failures > 60);
}

TEST_CASE("a disk that is too full is told before anything is written") {
  const TempDir dir;
  const std::string in = write_records(dir.file("in"), std::vector<std::string>(100, std::string(1000, 'x')));
  SyscallHook* space = find_hook("disk space");
  REQUIRE(space);
  space->fail_nth_call(1);
  const std::string message = error_of([&] { tool::run_split(shuffled(2, 0), {in}, dir.file("out"), gib); });
  space->fail_nth_call(0);
  CHECK(contains(message, "the disk of the folder has 4 KiB free, but the split needs about 198.4 KiB"));
  CHECK(fs::is_empty(dir.file("out")));
}

TEST_CASE("a bucket that somebody touched is noticed") {
  const TempDir dir;
  std::mt19937 random(6);
  std::vector<std::string> records;
  for (int i = 0; i < 40; i++) records.push_back(random_text(500, random));
  const std::string in = write_records(dir.file("in"), records), out = dir.file("out");
  const auto stop_after_scatter = [&] {
    SyscallHook* rename = find_hook("rename");
    rename->fail_nth_call(3);  // the first two name the job and the job with buckets; this one names the first shard
    const std::string message = error_of([&] { tool::run_split(shuffled(2, 1), {in}, out, gib); });
    CHECK(contains(message, "cannot be renamed from its temporary name"));
    CHECK(contains(message, "run the same command again"));
    rename->fail_nth_call(0);
  };
  stop_after_scatter();
  const std::string bucket = out + "/.out.split/bucket-00000";
  REQUIRE(fs::exists(bucket));
  std::string bytes = read_file(bucket);
  bytes[200] ^= 1;
  std::ofstream(bucket, std::ios::binary) << bytes;
  const std::string damaged = error_of([&] { tool::run_split(shuffled(2, 1), {in}, out, gib); });
  CHECK(contains(damaged, "the temporary file is damaged"));
  CHECK(!contains(damaged, "run the same command again"));
  std::ofstream(bucket, std::ios::binary) << bytes.substr(0, 900);
  CHECK(contains(error_of([&] { tool::run_split(shuffled(2, 1), {in}, out, gib); }), "the temporary file is damaged"));
}

TEST_CASE("a shard that somebody removed is written again, also after a shuffle") {
  const TempDir dir;
  std::mt19937 random(9);
  std::vector<std::string> records;
  for (int i = 0; i < 60; i++) records.push_back(random_text(5000, random));
  const std::string in = write_records(dir.file("in"), records);
  for (const uint64_t memory : {gib, uint64_t{200'000}}) {  // one bucket for all shards, and several
    const std::string out = dir.file(std::to_string(memory));
    tool::run_split(shuffled(4, 1), {in}, out, memory);
    const auto whole = contents(out);
    fs::remove(out + "/" + shard_files(out)[1]);
    CHECK(tool::run_split(shuffled(4, 1), {in}, out, memory).kept == 3);
    CHECK(contents(out) == whole);
  }
}

TEST_CASE("an input beside the shards that cannot be read is not called a shard that can be continued") {
  SyscallHook* read = find_hook("read");
  REQUIRE(read);
  for (int64_t n = 1;; n++) {
    const TempDir dir;
    const std::string in = write_records(dir.file("in"), {"a", "b", "c"});
    read->fail_nth_call(n);
    const std::string message = error_of([&] { tool::run_split(into(2), {in}, dir.path(), gib); });
    const bool fired = !read->pending();
    read->fail_nth_call(0);
    INFO("read " << n);
    if (!fired) {
      CHECK(n > 2);  // both passes read
      break;
    }
    CHECK_THAT(message, Catch::StartsWith(in + ": ") && !Catch::Contains("run the same command again"));
  }
}

TEST_CASE("interrupted, it says so, and goes on") {
  const TempDir dir;
  std::mt19937 random(8);
  std::vector<std::string> records;
  for (int i = 0; i < 4000; i++) records.push_back(random_text(5000, random));
  const std::string in = write_records(dir.file("in"), records), out = dir.file("out");
  const std::vector<std::string> arguments = {"split", in, "--out", out, "--shards", "40", "--name", "out"};
  Tool tool(arguments);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (shard_files(out).empty() && std::chrono::steady_clock::now() < end) usleep(100);
  tool.signal(SIGTERM);
  const ToolResult result = tool.wait();
  INFO(result.err);
  if (result.code == 0 ||
      result.code == 128 + SIGTERM) {  // the signal came when the last shard was under way, or there
    CHECK(all_records(out) == records);
  } else {
    CHECK(result.code == 1);
    CHECK(contains(result.err, "interrupted; run the same command again to continue"));
    for (const std::string& name : shard_files(out)) CHECK(!name.ends_with("-part"));
  }
  CHECK(run_tool(arguments).code == 0);
  CHECK(all_records(out) == records);
}

TEST_CASE("advice: a multiple of the readers, of 100 to 200 MB where there is enough") {
  for (const uint64_t readers : {1u, 2u, 3u, 8u, 64u, 1000u})
    for (const uint64_t bytes :
         {0ul, 1ul, 99'999'999ul, 150'000'000ul, 3'000'000'000ul, 204'000'000'000ul, 4'000'000'000'000ul}) {
      const tool::ShardAdvice advice = tool::advise_shards(bytes, readers);
      INFO(advice.text);
      CHECK(advice.shards % readers == 0);
      CHECK(advice.shards > 0);
      std::vector<uint64_t> all = advice.as_good;
      all.push_back(advice.shards);
      for (const uint64_t n : all) {
        CHECK(n % readers == 0);
        if (bytes < 100'000'000 * readers) continue;
        CHECK(bytes / n >= 100'000'000);
        CHECK(bytes / n <= 200'000'000);
      }
      CHECK(std::set<uint64_t>(all.begin(), all.end()).size() == all.size());
    }
}

TEST_CASE("the tool: names, advice, usage") {
  const TempDir dir;
  const std::string in = write_records(dir.file("train-00000-of-00001.tfrecord"), {"a", "b", "c"});
  const ToolResult text = run_tool({"split", in, "--out", dir.file("out"), "--shards", "2", "--readers", "2"});
  CHECK(text.code == 0);
  CHECK(contains(text.out, "3 records, 51 B, in 2 shards: " + dir.file("out") + "/train-*-of-00002.tfrecord\n"));
  CHECK(contains(text.out, "2 readers: 2 shards"));
  const auto again = run_tool({"split", in, "--out", dir.file("out"), "--shards", "2", "--json"}).json();
  CHECK(again.at("kept") == 2);
  CHECK(again.at("shards") == nlohmann::json({"train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"}));
  const ToolResult gzip =
      run_tool({"split", in, "--out", dir.file("gz"), "--shard-size", "1MB", "--compression", "gzip", "--name", "x"});
  CHECK(contains(gzip.out, "1 shard: " + dir.file("gz") + "/x-*-of-00001.tfrecord.gz\n"));
  CHECK(read_records(dir.file("gz/x-00000-of-00001.tfrecord.gz")).size() == 3);
  // An index beside the shards is not taken for data.
  CHECK(run_tool({"index", in}).code == 0);
  CHECK(run_tool({"split", in, beside(in), "--out", dir.file("one"), "--shards", "1"}).code == 0);
  const ToolResult advice = run_tool({"split", in, "--advise", "--readers", "4"});
  CHECK(advice.code == 0);
  CHECK(contains(advice.out, "4 readers: 4 shards"));
  CHECK(!contains(advice.out, "compress"));
  CHECK(run_tool({"split", in, "--advise", "--json"}).json().at("advice").at("shards") == 1);
  const std::string compressed = write_records(dir.file("in.gz"), {"a"}, true);
  CHECK(contains(run_tool({"split", compressed, "--advise"}).out, "write the shards with --compression gzip, too"));
}

namespace {

/// Kills the tool at random moments until it reaches its end, and returns the number of kills. After each kill, every
/// file with a shard's name must be whole.
int kill_until_done(const std::vector<std::string>& arguments, const std::string& out,
                    const std::map<std::string, std::string>& reference, std::mt19937& random, int64_t run_us) {
  for (int kills = 0;; kills++) {
    Tool tool(arguments);
    // Waits longer from time to time, so that the tool can end.
    const int64_t until = static_cast<int64_t>(random() % static_cast<uint64_t>(run_us * (4 + kills) / 4));
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(until);
    bool over = false;
    while (!over && std::chrono::steady_clock::now() < end) {
      siginfo_t info{};
      over = waitid(P_PID, static_cast<id_t>(tool.pid()), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid != 0;
      if (!over) usleep(200);
    }
    if (!over) tool.signal(SIGKILL);
    const ToolResult result = tool.wait();
    for (const auto& [name, content] : contents(out))
      if (name[0] != '.' && !name.ends_with("-part")) REQUIRE(content == reference.at(name));
    if (result.code == 128 + SIGKILL) continue;
    INFO(result.err);
    REQUIRE(result.code == 0);
    auto left = contents(out), expected = reference;
    left.erase(".out.split.json");
    expected.erase(".out.split.json");
    REQUIRE(left == expected);
    return kills;
  }
}

void kill_often(int wanted) {
  const TempDir dir;
  std::mt19937 random(7);
  std::vector<std::string> records;
  for (int i = 0; i < 400; i++) records.push_back(std::to_string(i) + random_text(4000, random));
  const std::string a = write_records(dir.file("a"), {records.begin(), records.begin() + 300});
  const std::string b = write_records(dir.file("b.gz"), {records.begin() + 300, records.end()}, true);
  int kills = 0;
  for (int round = 0; kills < wanted; round++) {
    std::vector<std::string> arguments = {"split", a,          b,   "--name",   "out", "--out",
                                          "",      "--shards", "6", "--memory", "1MiB"};
    if (round % 2) arguments.push_back("--shuffle");
    if (round % 3 == 0) arguments.insert(arguments.end(), {"--compression", "gzip"});
    const TempDir folder;
    arguments[6] = folder.file("reference");
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(run_tool(arguments).code == 0);
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
    const auto reference = contents(folder.file("reference"));
    arguments[6] = folder.file("out");
    kills += kill_until_done(arguments, folder.file("out"), reference, random, took.count());
  }
  std::printf("split: killed %d times\n", kills);
}

}  // namespace

TEST_CASE("killed at any moment, it goes on and ends the same") { kill_often(60); }
TEST_CASE("killed thousands of times", "[.stress]") { kill_often(3000); }
