// Ranks share the counting of a data set: exactly one rank counts each byte, and all ranks get the same indexes.
#include "flowgraph/data/index_files.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <random>

#include "base/worker_arena.h"
#include "feedline/records.h"
#include "flowgraph/data/count_data.h"
#include "io/frames.h"
#include "io/index/index_check.h"
#include "ranks/rank_group.h"
#include "support/catch.h"
#include "support/own_cache.h"
#include "support/ranks.h"
#include "support/same_index.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;

namespace {

namespace fs = std::filesystem;

struct Folder {
  TempDir dir;
  OwnCache cache{dir.file("cache")};

  flow::PipelineSpec spec(const std::string& index = "", const std::string& more = "") const {
    return flow::validate(parse_pipeline(
        "source { files: 'data*' record_type: RAW " + index + " } batch { global_batch_size: 1 } " + more, dir.path()));
  }
  size_t indexes() const {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(dir.path()))
      count += entry.path().string().ends_with(".feedline-index");
    return count;
  }
  void forget() const {
    for (const auto& entry : fs::directory_iterator(dir.path()))
      if (entry.path().string().ends_with(".feedline-index")) fs::remove(entry.path());
  }
};

std::string records(std::mt19937& random, size_t bytes, size_t longest) {
  std::string file;
  while (file.size() < bytes) file += frame(random_text(random() % (longest + 1), random));
  return file;
}

// Returns a file whose records each contain a whole file of records. Most borders at which ranks may cut lie inside
// one.
std::string nested(std::mt19937& random, size_t bytes) {
  std::string file;
  while (file.size() < bytes)
    file += frame(random_text(random() % 100, random) + records(random, 300'000 + random() % 300'000, 2000));
  return file;
}

struct Shared {
  std::vector<flow::DataSet> of_rank;
  std::vector<uint64_t> told;  // bytes that each rank's progress reported as counted
  std::vector<std::string> thrown;
  uint64_t counted() const {
    uint64_t sum = 0;
    for (const flow::DataSet& data : of_rank) sum += data.counted_bytes;
    return sum;
  }
};

Shared count(const std::vector<flow::PipelineSpec>& specs, int threads = 1) {
  const auto ranks = static_cast<int>(specs.size());
  Shared shared{std::vector<flow::DataSet>(specs.size()), std::vector<uint64_t>(specs.size()), {}};
  shared.thrown = on_ranks(ranks, [&](int rank, Exchange exchange) {
    const auto mine = static_cast<size_t>(rank);
    RankGroup group(std::move(exchange), rank, ranks);
    group.run([&] {
      shared.of_rank[mine] = flow::count_data(
          specs[mine], threads, [&](uint64_t done, uint64_t) { shared.told[mine] = done; }, group);
    });
  });
  return shared;
}

void check_all_same(const Shared& shared, const flow::DataSet& alone) {
  for (const std::string& thrown : shared.thrown) CHECK(thrown.empty());
  for (const flow::DataSet& data : shared.of_rank) {
    CHECK(data.digest == alone.digest);
    CHECK(data.samples == alone.samples);
    REQUIRE(data.files.size() == alone.files.size());
    for (size_t f = 0; f < data.files.size(); f++) {
      INFO(data.files[f].id.uri);
      check_same(data.files[f].index, alone.files[f].index);
    }
  }
}

}  // namespace

TEST_CASE("every byte is counted by one rank, and all have the same indexes") {
  std::mt19937 random(1);
  const Folder folder;
  int number = 0;
  const std::string what = GENERATE("many", "one", "nested", "damaged", "compressed", "small");
  INFO(what);
  if (what == "many")
    for (const size_t size : {3'000'000, 0, 10, 5'000'000, 700'000, 2'000'000, 0})
      folder.dir.write("data-" + std::to_string(number++), records(random, size, 3000));
  if (what == "one") folder.dir.write("data", records(random, 9'000'000, 3000));
  if (what == "nested") folder.dir.write("data", nested(random, 9'000'000));
  if (what == "damaged") {
    std::string file = nested(random, 9'000'000);
    for (size_t at = 500'000; at < file.size(); at += 700'000) file.replace(at, 100, 100, '\0');
    folder.dir.write("data", file);
  }
  if (what == "compressed")
    while (number < 3) {
      RecordWriter writer(folder.dir.file("data-" + std::to_string(number++)), {.compression = Compression::gzip});
      for (int i = 0; i < 3000; i++) writer.write(bytes_of(random_text(random() % 2000, random)));
      writer.close();
    }
  if (what == "small")
    while (number < 5) folder.dir.write("data-" + std::to_string(number++), records(random, 5000, 100));

  const std::string errors = "errors { on_error: SKIP_RECORD }";
  const flow::PipelineSpec spec = folder.spec("", errors);
  const flow::DataSet alone = flow::count_data(spec, 2, {});
  CHECK(alone.counted_bytes == alone.bytes);
  if (what == "compressed")
    for (const flow::DataFile& file : alone.files) CHECK(file.index.seek_points.size() >= 1);
  const size_t kept = folder.indexes();
  uint64_t not_kept = 0;  // bytes of files that are too small for an index to be stored
  for (const flow::DataFile& file : alone.files) not_kept += file.id.size < 1 << 20 ? file.id.size : 0;
  for (const size_t ranks : {1, 2, 3, 4, 7}) {
    INFO(ranks << " ranks");
    folder.forget();
    const Shared shared = count(std::vector(ranks, spec), ranks == 3 ? 2 : 1);
    check_all_same(shared, alone);
    CHECK(shared.counted() == alone.bytes);
    for (size_t rank = 0; rank < ranks; rank++) {
      CHECK(shared.told[rank] == shared.of_rank[rank].counted_bytes);
      // Ranks get equal shares of plain data, up to the places at which it may be cut.
      if (what == "one" || what == "nested") CHECK(shared.told[rank] <= alone.bytes / ranks + (1 << 20));
    }
    CHECK(folder.indexes() == kept);
    const Shared again = count(std::vector(ranks, spec));
    check_all_same(again, alone);
    CHECK(again.counted() == not_kept);
  }
}

TEST_CASE("an index that one rank has is told to the others, and nothing is counted") {
  std::mt19937 random(2);
  const Folder folder;
  for (const char* name : {"data-0", "data-1", "data-2"}) folder.dir.write(name, records(random, 2'000'000, 3000));
  const auto in = [&](const std::string& dir) { return folder.spec("index { mode: REQUIRE dir: '" + dir + "' }"); };
  const flow::DataSet alone = flow::count_data(folder.spec("index { dir: 'a' }"), 2, {});
  flow::count_data(folder.spec("index { dir: 'b' }"), 2, {});
  size_t left = 3;
  for (const auto& entry : fs::directory_iterator(folder.dir.file("b")))
    if (left-- > 1) fs::remove(entry.path());  // leaves one index in b

  const Shared shared = count({in("b"), in("none"), in("a")});
  check_all_same(shared, alone);
  CHECK(shared.counted() == 0);
  CHECK(folder.indexes() == 4);  // a rank that has not read a file stores no index of it
  for (const flow::DataSet& data : shared.of_rank)
    for (const flow::DataFile& file : data.files) CHECK(file.index.records > 0);
  CHECK(shared.of_rank[1].files[0].index.memory_bytes() > 0);  // a received index lies in memory

  const Shared refused = count({in("none"), in("b")});
  for (const std::string& thrown : refused.thrown)
    CHECK(thrown.find("index.mode is REQUIRE, but this file has no valid index") != std::string::npos);
}

TEST_CASE("ranks with folders of their own keep what they counted, and have all of it together") {
  std::mt19937 random(4);
  const Folder folder;
  for (const size_t size : {2'000'000, 9'000'000, 10'000, 3'000'000})
    folder.dir.write("data-" + std::to_string(size), records(random, size, 3000));
  const flow::DataSet alone = flow::count_data(folder.spec("index { dir: 'alone' }"), 2, {});
  std::vector<flow::PipelineSpec> specs;
  for (const char* dir : {"a", "b", "c"}) specs.push_back(folder.spec("index { dir: '" + std::string(dir) + "' }"));
  check_all_same(count(specs), alone);
  CHECK(folder.indexes() == 2 * alone.files.size());
  const Shared again = count(specs);
  check_all_same(again, alone);
  CHECK(again.counted() == 0);
}

TEST_CASE("a rank that has much to tell tells it in several messages") {
  std::mt19937 random(9);
  const Folder folder;
  for (const size_t size : {5'000'000, 0, 9'000'000, 100, 2'000'000})
    folder.dir.write("data-" + std::to_string(size), records(random, size, 3000));
  RecordWriter writer(folder.dir.file("data-packed"), {.compression = Compression::gzip});
  for (int i = 0; i < 3000; i++) writer.write(bytes_of(random_text(random() % 2000, random)));
  writer.close();
  const flow::PipelineSpec spec = folder.spec("index { dir: 'none' }");
  const flow::DataSet alone = flow::count_data(spec, 2, {});
  const auto exchanged = [&](size_t message_bytes) {
    std::vector<int> calls(3);
    fs::remove_all(folder.dir.file("none"));
    const auto thrown = on_ranks(3, [&](int rank, Exchange exchange) {
      RankGroup group(
          [&, exchange = std::move(exchange)](std::string_view mine) {
            calls[static_cast<size_t>(rank)]++;
            return exchange(mine);
          },
          rank, 3);
      group.run([&] {
        flow::DataSet data;
        for (const flow::DataFile& file : alone.files)
          data.files.push_back({.id = file.id, .index = {}, .samples = {}});
        WorkerArena arena(1, {});
        flow::index_files(spec, data, arena, group, {}, message_bytes);
        for (size_t f = 0; f < data.files.size(); f++) check_same(data.files[f].index, alone.files[f].index);
      });
    });
    for (const std::string& what : thrown) CHECK(what.empty());
    CHECK(calls == std::vector(3, calls[0]));
    return calls[0];
  };
  const int in_one = exchanged(256 << 20);
  const int in_each = exchanged(1), in_some = exchanged(2'000);
  CHECK(in_one < in_some);
  CHECK(in_some <= in_each);
}

TEST_CASE("a rank that fails while counting makes all fail with its reason") {
  std::mt19937 random(3);
  const Folder folder;
  folder.dir.write("data", records(random, 9'000'000, 3000));
  const flow::PipelineSpec spec = folder.spec();
  const auto thrown = on_ranks(3, [&](int rank, Exchange exchange) {
    RankGroup group(std::move(exchange), rank, 3);
    group.run([&] {
      const auto progress = [&](uint64_t, uint64_t) {
        if (rank == 1) throw Error(Category::io_error, "the disk is gone", {"d", 5, 6, "f"});
      };
      flow::count_data(spec, 1, progress, group);
    });
  });
  CHECK(thrown[0] == "d: offset 5: record 6: feature 'f': rank 1: the disk is gone [io_error]");
  CHECK(thrown[1] == "d: offset 5: record 6: feature 'f': the disk is gone [io_error]");
  CHECK(thrown[2] == thrown[0]);
  CHECK(folder.indexes() == 0);
}

namespace {

// Returns an exchange in which `lie` changes what rank 1 tells rank 0: long messages only, and only the part after the
// head.
Exchange lied_to(Exchange exchange, const std::function<void(std::string& told)>& lie) {
  return [exchange = std::move(exchange), lie](std::string_view mine) {
    constexpr size_t head = 32;
    std::vector<std::string> all = exchange(mine);
    if (all[1].size() > head + 1000) {
      std::string told = all[1].substr(head);
      lie(told);
      all[1].replace(head, std::string::npos, told);
    }
    return all;
  };
}

// Runs rank 0 with `lie` between it and rank 1. Returns the data that rank 0 counted, and what it threw.
std::pair<flow::DataSet, std::string> believe(const std::vector<flow::PipelineSpec>& specs,
                                              const std::function<void(std::string& told)>& lie) {
  flow::DataSet data;
  const auto thrown = on_ranks(2, [&](int rank, Exchange exchange) {
    if (rank == 0) exchange = lied_to(std::move(exchange), lie);
    RankGroup group(std::move(exchange), rank, 2);
    group.run([&] {
      flow::DataSet counted = flow::count_data(specs[static_cast<size_t>(rank)], 1, {}, group);
      if (rank == 0) data = std::move(counted);
    });
  });
  return {std::move(data), thrown[0]};
}

uint64_t word(const std::string& bytes, size_t number) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + 8 * number, 8);
  return value;
}
void set_word(std::string& bytes, size_t number, uint64_t value) { std::memcpy(&bytes[8 * number], &value, 8); }

}  // namespace

TEST_CASE("a chain that another rank made up is refused, or makes an index that holds together") {
  std::mt19937_64 random(5);
  std::mt19937 content(6);
  const Folder folder;
  folder.dir.write("data", records(content, 2'200'000, 3000));
  const std::vector specs(2, folder.spec("index { stride: '4KiB' dir: 'none' }"));
  const auto forget = [&] { fs::remove_all(folder.dir.file("none")); };

  std::string sound;
  const auto [data, thrown] = believe(specs, [&](std::string& told) { sound = told; });
  forget();
  REQUIRE(thrown.empty());
  const uint64_t size = data.files[0].id.size;
  // One chain: its start, end, number of records and payload bytes; then its entries, then its groups.
  enum : size_t { chains, start, end, chain_records, payload, entries, first_entry };
  REQUIRE(word(sound, chains) == 1);
  const size_t groups = first_entry + 2 * word(sound, entries);
  REQUIRE(sound.size() == 8 * (groups + 1 + 2 * word(sound, groups)));

  struct Lie {
    size_t word;
    uint64_t value;
  };
  const uint64_t third = first_entry + 6, last_entry = groups - 2;
  const std::vector<Lie> lies = {
      {chains, 0},
      {chains, 2},
      {chains, UINT64_MAX},
      {start, word(sound, end)},
      {start, UINT64_MAX},
      {end, size + 1},
      {end, UINT64_MAX},
      {end, word(sound, start)},
      {chain_records, 0},
      {chain_records, UINT64_MAX},
      {chain_records, word(sound, chain_records) + 1},
      {payload, word(sound, payload) + 1},
      {payload, 0},
      {entries, 0},
      {entries, UINT64_MAX},
      {entries, word(sound, entries) - 1},
      {third, 0},
      {third, UINT64_MAX},
      {third, word(sound, third + 4)},
      {third, word(sound, end)},
      {third + 1, 0},
      {third + 1, UINT64_MAX},
      {third + 1, word(sound, third + 5)},
      {last_entry, word(sound, first_entry)},
      {groups, 0},
      {groups, UINT64_MAX},
      {groups + 2, UINT64_MAX},                  // the sizes of an empty group, but a sum
      {groups + 2, uint64_t{UINT32_MAX} << 32},  // a record of 4 GiB
      {groups + 2, uint64_t{1} << 32 | 2},       // the largest is smaller than the smallest
  };
  for (const Lie& lie : lies) {
    const auto [lied, why] = believe(specs, [&](std::string& told) { set_word(told, lie.word, lie.value); });
    forget();
    INFO("word " << lie.word << ": " << lie.value << ": " << why);
    // If the chain is missing, the rank reads the part itself.
    if (lie.word == chains && lie.value == 0) continue;
    CHECK_FALSE(why.empty());
  }
  // Changes any word; the result may be a lie that no check can find.
  size_t refused = 0, believed = 0;
  for (int round = 0; round < 150; round++) {
    const size_t at = round < 20 ? static_cast<size_t>(round) : random() % (sound.size() / 8);
    const uint64_t old = word(sound, at);
    const uint64_t values[] = {old + 1, old - 1, old + 16, old - 4096, random() % size, word(sound, random() % groups)};
    const uint64_t value = values[random() % std::size(values)];
    const auto [lied, why] = believe(specs, [&](std::string& told) { set_word(told, at, value); });
    forget();
    INFO("word " << at << ": " << value << ": " << why);
    (why.empty() ? believed : refused)++;
    if (why.empty()) CHECK(io::contradiction(lied.files[0].index, size, io::default_record_limit).empty());
  }
  CHECK(refused > 50);
  CHECK(believed > 0);
}

TEST_CASE("an index that another rank made up is checked as one in a file") {
  std::mt19937 content(7);
  const Folder folder;
  folder.dir.write("data", records(content, 2'200'000, 3000));
  const auto in = [&](const std::string& dir) { return folder.spec("index { dir: '" + dir + "' }"); };
  flow::count_data(in("kept"), 1, {});
  const auto told = [&](size_t at, const std::function<uint64_t(uint64_t)>& value) {
    return believe({in("none"), in("kept")},
                   [&](std::string& bytes) {
                     // The message is the length of the index, then the index.
                     std::string index = bytes.substr(8, word(bytes, 0));
                     set_word(index, at, value(word(index, at)));
                     const uint32_t crc = io::crc32c(bytes_of(index).subspan(16));
                     std::memcpy(&index[12], &crc, 4);
                     bytes.replace(8, index.size(), index);
                   })
        .second;
  };
  CHECK(told(11, [](uint64_t largest) { return largest; }).empty());
  CHECK_THAT(told(11, [](uint64_t largest) { return 1000 * largest; }),
             Catch::Contains("contradicts itself or the file"));
  CHECK_THAT(told(21 + 2 * 5, [](uint64_t offset) { return offset + 16384; }),
             Catch::Contains("contradicts itself or the file"));
}

TEST_CASE("a rank says of each file whether it has an index") {
  const Folder folder;
  std::mt19937 content(8);
  for (const char* name : {"data-0", "data-1"}) folder.dir.write(name, records(content, 5000, 100));
  const std::vector specs(2, folder.spec());
  for (const std::string& wrong : {std::string("0"), std::string("000"), std::string("02"), std::string()}) {
    const auto thrown = on_ranks(2, [&](int rank, Exchange exchange) {
      constexpr size_t head = 32;
      RankGroup group(
          [&, exchange = std::move(exchange)](std::string_view mine) {
            std::vector<std::string> all = exchange(mine);
            if (rank == 0 && all[1].substr(head) == "00") all[1].replace(head, 2, wrong);
            return all;
          },
          rank, 2);
      group.run([&] { flow::count_data(specs[0], 1, {}, group); });
    });
    INFO(wrong);
    CHECK_THAT(thrown[0], Catch::Contains("rank 1 sent an invalid description of its files: it does not say for each"));
  }
}
