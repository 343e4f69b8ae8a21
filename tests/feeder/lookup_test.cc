// Rows of tables through the whole feed: which row each record is given, and what becomes of those that have none.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>

#include "base/machine.h"
#include "base/syscall_hooks.h"
#include "data.h"
#include "distributed.h"
#include "support/catch.h"
#include "support/log_lines.h"
#include "support/npy.h"
#include "support/ranks.h"
#include "support/skip.h"

using namespace feedline;
using namespace feedline::test;

namespace {

constexpr int64_t table_rows = 50;

/// The name of row i of the table, and what is in it.
std::string name_of(int64_t row) { return "img-" + std::to_string(row * 37 % 1000); }
std::vector<float> floats_of(int64_t row) {
  return {static_cast<float>(row), static_cast<float>(row) / 2, -1, 0.25f, 1e6f, static_cast<float>(-row)};
}

/// Records of which record i is of row row_of(i) of the table, by number and by name: captions of images, five of each
/// one after another. Records in `lost` name a row that there is not.
class Captions {
 public:
  explicit Captions(int64_t count, const std::set<int64_t>& lost = {}) : count_(count) {
    std::vector<std::string> records;
    for (int64_t i = 0; i < count; i++) {
      const bool gone = lost.contains(i);
      records.push_back(wire::example(
          wire::entry("id", wire::int64_feature({i})) +
          wire::entry("row", wire::int64_feature({gone ? table_rows + i : row_of(i)})) +
          wire::entry("image", wire::bytes_feature({gone ? "gone-" + std::to_string(i) : name_of(row_of(i))}))));
    }
    write_records(dir_.file("captions.tfrecord"), records);
    std::vector<float> floats;
    std::string names, bytes, halves;
    for (int64_t row = 0; row < table_rows; row++) {
      const std::vector<float> of_row = floats_of(row);
      floats.insert(floats.end(), of_row.begin(), of_row.end());
      names += name_of(row) + '\n';
      bytes += {static_cast<char>(row), static_cast<char>(row + 100)};
      halves += in_memory<uint16_t>({static_cast<uint16_t>(0x3c00 + row)});  // 1 + row / 1024
    }
    dir_.write("names.txt", names);
    dir_.write("floats.npy", npy("<f4", "(50, 2, 3)", in_memory(floats)));
    dir_.write("bytes.npy", npy("|u1", "(50, 2)", bytes));
    dir_.write("halves.npy", npy("<f2", "(50,)", halves));
  }

  static int64_t row_of(int64_t record) { return record / 5 * 7 % table_rows; }

  Pipeline pipeline(const std::string& more) const {
    return parse_pipeline(
        "source { files: 'captions.tfrecord' } feature { name: 'id' dtype: INT64 } "
        "feature { name: 'row' dtype: INT64 } feature { name: 'image' dtype: BYTES } "
        "output { name: 'id' feature: 'id' } " +
            more,
        dir_.path());
  }
  int64_t count() const { return count_; }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
  int64_t count_;
};

/// Returns where a record begins in its file.
int64_t offset_of(const Captions& captions, int64_t record) {
  Feeder feeder(captions.pipeline("output { name: 'at' feature: '@offset' } " + batch_of(captions.count(), "DROP")));
  return feeder.next().at("at").as<int64_t>()[static_cast<size_t>(record)];
}

/// Outputs of all three tables, by name and by number, as they are and cast.
std::string lookups(const std::string& where = "") {
  const std::string more = " " + where + " } ";
  return "output { name: 'feats' feature: 'image' lookup { table: 'floats.npy' keys_file: 'names.txt'" + more +
         "} output { name: 'same' feature: 'row' lookup { table: 'floats.npy'" + more +
         "} output { name: 'half' feature: 'row' dtype: FLOAT32 lookup { table: 'halves.npy'" + more +
         "} output { name: 'scaled' feature: 'image' lookup { table: 'bytes.npy' keys_file: 'names.txt'" + more +
         "normalize { scale: 0.5 mean: [1, 2] } } ";
}

/// Adds the ids of a batch's valid rows. Throws if a row has other values than its record names. Several ranks do so at
/// the same time, so it uses no macro of Catch2.
void check_rows(const Batch& batch, std::vector<int64_t>& ids) {
  const auto valid = batch.at("@valid").as<uint8_t>();
  const auto id = batch.at("id").as<int64_t>();
  const auto feats = batch.at("feats").as<float>(), same = batch.at("same").as<float>();
  const auto half = batch.at("half").as<float>(), scaled = batch.at("scaled").as<float>();
  for (size_t i = 0; i < id.size(); i++) {
    if (!valid[i]) continue;
    ids.push_back(id[i]);
    const int64_t row = Captions::row_of(id[i]);
    const std::vector<float> wanted = floats_of(row);
    const auto check = [&](const char* output, bool right) {
      if (!right) throw std::logic_error(fmt::format("{} of record {} is wrong", output, id[i]));
    };
    check("feats", std::vector<float>(&feats[6 * i], &feats[6 * i] + 6) == wanted);
    check("same", std::vector<float>(&same[6 * i], &same[6 * i] + 6) == wanted);
    check("half", half[i] == 1 + static_cast<float>(row) / 1024);
    check("scaled", scaled[2 * i] == static_cast<float>(row) / 2 - 1);
    check("scaled", scaled[2 * i + 1] == static_cast<float>(row + 100) / 2 - 2);
  }
}

/// Returns whether files in this folder can be read past the page cache.
bool passes_page_cache(const TempDir& dir) {
  struct statfs system {};
  const int fd = open(dir.write("tried", "").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0 && statfs(dir.path().c_str(), &system) == 0 && system.f_type != TMPFS_MAGIC;
}

/// Removes a file from the page cache.
void forget(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  CHECK(fsync(fd) == 0);
  CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
  close(fd);
}

/// Returns how many bytes of a file are in the page cache.
int64_t cached_bytes(const std::string& path) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), size = std::filesystem::file_size(path);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  void* const mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  REQUIRE(mapped != MAP_FAILED);
  std::vector<unsigned char> pages((size + page - 1) / page);
  CHECK(mincore(mapped, size, pages.data()) == 0);
  munmap(mapped, size);
  return static_cast<int64_t>(page) * std::ranges::count_if(pages, [](unsigned char byte) { return byte & 1; });
}

/// Returns how much memory this process has.
uint64_t resident_bytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("each record is given its row, in every order, by name and by number, read or resident") {
  const Captions captions(600);
  for (const std::string where : {"", "resident: true", "on_device: true"})
    for (const std::string order :
         {"", "shuffle { block_size: '16KiB' buffer_size: 100 } ", "shuffle { mode: GLOBAL } ",
          "shuffle { mode: BUFFER buffer_size: 50 } ", "window { size: 3 } ", "filter: 'id != 7' "})
      for (const int count : {1, 2}) {
        INFO(order << where << ", " << count << " replicas");
        Feeder feeder(captions.pipeline(lookups(where) + order + batch_of(14, "PAD")), replicas(count));
        std::vector<int64_t> ids;
        for (bool ended = false; !ended;)
          for (int replica = 0; replica < count; replica++) {
            const Batch batch = feeder.next(replica);
            if ((ended = !batch)) continue;
            const std::vector<int64_t> more =
                order.starts_with("window") ? std::vector<int64_t>{3} : std::vector<int64_t>();
            std::vector<int64_t> shape = {batch.rows()};
            shape.insert(shape.end(), more.begin(), more.end());
            CHECK(batch.at("half").shape == Shape(shape));
            CHECK(batch.at("scaled").dtype == DType::float32);
            shape.insert(shape.end(), {2, 3});
            CHECK(batch.at("feats").shape == Shape(shape));
            check_rows(batch, ids);
          }
        std::sort(ids.begin(), ids.end());
        std::vector<int64_t> wanted = numbers(600);
        if (order.starts_with("filter")) std::erase(wanted, 7);
        CHECK(ids == wanted);
        CHECK(feeder.report().last_epoch->verdict == EpochAudit::Verdict::holds);
      }
}

TEST_CASE("a name or a number that the table has not is a bad record, with the key in its message") {
  const std::set<int64_t> lost = {0, 8, 9, 10, 11, 599};
  const Captions captions(600, lost);
  const std::string by_name =
      "output { name: 'feats' feature: 'image' lookup { table: 'floats.npy' keys_file: 'names.txt' } } ";
  const std::string by_number =
      "output { name: 'feats' feature: 'row' lookup { table: 'floats.npy' on_device: true } } ";
  for (const std::string& output : {by_name, by_number})
    for (const int count : {1, 2}) {
      INFO(output << count << " replicas");
      Feeder feeder(captions.pipeline(output + "errors { on_error: SKIP_RECORD } " + batch_of(10, "DROP")),
                    replicas(count));
      int64_t rows = 0, valid = 0;
      for (int step = 0; step < 60; step++)
        for (int replica = 0; replica < count; replica++) {
          const Batch batch = feeder.next(replica);
          rows += batch.rows();
          valid += batch.valid_count();
          const auto mask = batch.at("@valid").as<uint8_t>();
          const auto id = batch.at("id").as<int64_t>();
          const auto feats = batch.at("feats").as<float>();
          for (size_t i = 0; i < mask.size(); i++) {
            if (mask[i]) CHECK_FALSE(lost.contains(id[i]));
            REQUIRE(std::vector<float>(&feats[6 * i], &feats[6 * i] + 6) == floats_of(Captions::row_of(id[i])));
          }
        }
      CHECK(rows == 600);
      CHECK(valid == 594);
      for (int replica = 0; replica < count; replica++) CHECK_FALSE(feeder.next(replica));
      const Report report = feeder.report();
      CHECK(report.bad_records == 6);
      REQUIRE(report.errors.size() == 6);
      CHECK(report.last_epoch->verdict == EpochAudit::Verdict::holds);
      const Error& error = report.errors[1];
      CHECK(error.category() == Category::wrong_value);
      CHECK(error.place().file == captions.dir().file("captions.tfrecord"));
      CHECK(error.place().offset == offset_of(captions, 8));
      CHECK(error.place().record == 8);
      CHECK(error.place().feature == (output == by_name ? "image" : "row"));
      CHECK(
          error.message() ==
          (output == by_name
               ? "names.txt does not have the name 'gone-8'; add the name to this file and its row to floats.npy, give "
                 "lookup.unknown, or correct the record"
               : "there is no row 58 in floats.npy, which has rows 0 to 49; give lookup.unknown, or correct the record "
                 "or the table"));
    }
  for (const std::string& output : {by_name, by_number}) {
    const Captions one_lost(40, {9});
    Feeder strict(one_lost.pipeline(output + batch_of(4, "DROP")));
    CHECK(strict.next().at("id").as<int64_t>()[3] == 3);
    CHECK(strict.next().at("id").as<int64_t>()[3] == 7);
    try {
      strict.next();
      FAIL("a record names a row that there is not");
    } catch (const Error& error) {
      const bool named = output == by_name;
      CHECK(error.category() == Category::wrong_value);
      CHECK(error.place() ==
            Place{one_lost.dir().file("captions.tfrecord"), offset_of(one_lost, 9), 9, named ? "image" : "row"});
      CHECK_THAT(error.message(), Catch::Contains(named ? "'gone-9'" : "no row 59 in floats.npy"));
    }
    Feeder mixed(captions.pipeline(output + "shuffle { mode: GLOBAL } " + batch_of(600, "DROP")));
    CHECK_THROWS_AS(mixed.next(), Error);
    Feeder limited(
        captions.pipeline(output + "errors { on_error: SKIP_RECORD max_failures: 5 } " + batch_of(10, "DROP")));
    CHECK_THROWS_WITH(
        [&] {
          while (limited.next()) {
          }
        }(),
        Catch::Contains("errors.max_failures"));
  }
  const Captions negative(3);
  const TempDir& dir = negative.dir();
  write_records(dir.file("captions.tfrecord"), {wire::example(wire::entry("id", wire::int64_feature({0})) +
                                                              wire::entry("row", wire::int64_feature({-1})) +
                                                              wire::entry("image", wire::bytes_feature({""})))});
  CHECK_THROWS_WITH(Feeder(negative.pipeline(by_number + batch_of(1, "DROP"))).next(),
                    Catch::Contains("there is no row -1 in floats.npy"));
  CHECK_THROWS_WITH(Feeder(negative.pipeline(by_name + batch_of(1, "DROP"))).next(),
                    Catch::Contains("names.txt does not have the name ''"));
}

TEST_CASE("several rows of a record: by number and by name, wherever the rows lie, in every order") {
  const TempDir dir;
  constexpr int64_t each = 300;  // the writer is given 256 values at a time
  const auto row_of = [](int64_t id, int64_t i) { return (id * 11 + i * 7) % table_rows; };
  const auto write = [&](int64_t lost) {
    std::vector<std::string> records;
    for (int64_t id = 0; id < 60; id++) {
      std::vector<int64_t> rows;
      std::vector<std::string> names;
      for (int64_t i = 0; i < each; i++) {
        rows.push_back(id == lost && i >= 280 ? table_rows + i : row_of(id, i));
        names.push_back(name_of(row_of(id, i)));
      }
      names.resize(2);
      records.push_back(wire::example(wire::entry("id", wire::int64_feature({id})) +
                                      wire::entry("rows", wire::int64_feature(rows)) +
                                      wire::entry("names", wire::bytes_feature(names))));
    }
    write_records(dir.file("data"), records);
  };
  std::vector<float> floats;
  std::string names, bytes;
  for (int64_t row = 0; row < table_rows; row++) {
    const std::vector<float> of_row = floats_of(row);
    floats.insert(floats.end(), of_row.begin(), of_row.end());
    names += name_of(row) + '\n';
    bytes += {static_cast<char>(row), static_cast<char>(row + 100)};
  }
  dir.write("names.txt", names);
  dir.write("floats.npy", npy("<f4", "(50, 2, 3)", in_memory(floats)));
  dir.write("bytes.npy", npy("|u1", "(50, 2)", bytes));
  const auto pipeline = [&](const std::string& where, const std::string& more) {
    return parse_pipeline(
        fmt::format("source {{ files: 'data' }} feature {{ name: 'id' dtype: INT64 }} feature {{ name: 'rows' dtype: "
                    "INT64 shape: [150, 2] }} feature {{ name: 'names' dtype: BYTES shape: 2 }} output {{ name: 'id' "
                    "feature: 'id' }} output {{ name: 'rows' feature: 'rows' lookup {{ table: 'bytes.npy' {0} }} "
                    "normalize {{ scale: 0.5 mean: [1, 2] }} }} output {{ name: 'names' feature: 'names' lookup {{ "
                    "table: 'floats.npy' keys_file: 'names.txt' {0} }} }} ",
                    where) +
            more,
        dir.path());
  };
  const auto check = [&](const Batch& batch, std::vector<int64_t>& ids) {
    const auto valid = batch.at("@valid").as<uint8_t>();
    const auto id = batch.at("id").as<int64_t>();
    const auto rows = batch.at("rows").as<float>(), named = batch.at("names").as<float>();
    for (size_t r = 0; r < id.size(); r++) {
      if (!valid[r]) continue;
      ids.push_back(id[r]);
      bool right = true;
      for (size_t i = 0; i < each; i++) {
        const auto row = static_cast<float>(row_of(id[r], static_cast<int64_t>(i)));
        const float* const at = &rows[2 * (r * each + i)];
        right = right && at[0] == row / 2 - 1 && at[1] == (row + 100) / 2 - 2;
      }
      for (size_t i = 0; i < 2; i++) {
        const float* const at = &named[6 * (2 * r + i)];
        right = right && std::vector<float>(at, at + 6) == floats_of(row_of(id[r], static_cast<int64_t>(i)));
      }
      if (!right) throw std::logic_error(fmt::format("the rows of record {} are wrong", id[r]));
    }
  };
  write(-1);
  for (const std::string where : {"", "resident: true", "on_device: true"}) {
    for (const std::string order : {"", "shuffle { mode: GLOBAL } ", "window { size: 2 } "}) {
      INFO(where << order);
      Feeder feeder(pipeline(where, order + batch_of(10, "DROP")));
      const Batch first = feeder.next();
      std::vector<int64_t> axes{first.rows()}, of_names = axes;
      if (order.starts_with("window")) axes.push_back(2), of_names.push_back(2);
      axes.insert(axes.end(), {150, 2, 2});
      of_names.insert(of_names.end(), {2, 2, 3});
      CHECK((first.at("rows").shape == Shape(axes) && first.at("names").shape == Shape(of_names)));
      std::vector<int64_t> ids;
      check(first, ids);
      while (const Batch batch = feeder.next()) check(batch, ids);
      std::ranges::sort(ids);
      CHECK(ids == numbers(60));
    }
    for (const std::string mode : {"SPLIT", "REPLICATE", "SCATTER"}) {
      INFO(where << mode);
      std::vector<int64_t> ids[2];
      const auto thrown = on_communicators(2, [&](int rank, Ends end) {
        Feeder feeder(pipeline(where, "distribute { mode: " + mode + " } " + batch_of(10, "DROP")),
                      of_rank(std::move(end), 1));
        while (const Batch batch = feeder.next()) check(batch, ids[rank]);
      });
      CHECK(thrown == nothing_thrown(2));
      CHECK(ids[0].size() == (mode == "REPLICATE" ? 60 : 30));
    }
  }
  write(37);
  for (const std::string where : {"", "resident: true", "on_device: true"}) {
    INFO(where);
    Feeder feeder(pipeline(where, "errors { on_error: SKIP_RECORD } " + batch_of(10, "DROP")));
    const TriedRecords tried = feeder.try_records(60);
    REQUIRE(tried.errors.size() == 1);
    std::vector<int64_t> ids;
    while (const Batch batch = feeder.next()) check(batch, ids);
    CHECK(ids.size() == 59);
    const Report report = feeder.report();
    REQUIRE(report.errors.size() == 1);
    CHECK((report.errors[0].place().record == 37 && report.errors[0].place().feature == "rows"));
    CHECK_THAT(report.errors[0].message(), Catch::StartsWith("value 280: there is no row 330 in bytes.npy, which has "
                                                             "rows 0 to 49; give lookup.unknown"));
    CHECK(tried.errors[0].message() == report.errors[0].message());
  }
}

TEST_CASE("with `unknown` no record is bad: what the table has not is given this row") {
  const std::set<int64_t> lost = {0, 8, 9, 10, 11, 599};
  const Captions captions(600, lost);
  for (const std::string where : {"", "resident: true", "on_device: true"})
    for (const int64_t unknown : {int64_t{0}, table_rows - 1})
      for (const int count : {1, 2}) {
        INFO(where << ", row " << unknown << ", " << count << " replicas");
        const std::string more = fmt::format(" {} unknown: {} ", where, unknown);
        Feeder feeder(
            captions.pipeline(lookups(more) + "shuffle { mode: BLOCK buffer_size: 50 } " + batch_of(20, "DROP")),
            replicas(count));
        int64_t rows = 0;
        for (bool ended = false; !ended;)
          for (int replica = 0; replica < count; replica++) {
            const Batch batch = feeder.next(replica);
            if ((ended = !batch)) continue;
            rows += batch.valid_count();
            const auto id = batch.at("id").as<int64_t>();
            const auto feats = batch.at("feats").as<float>(), half = batch.at("half").as<float>();
            for (size_t i = 0; i < id.size(); i++) {
              const int64_t row = lost.contains(id[i]) ? unknown : Captions::row_of(id[i]);
              REQUIRE(std::vector<float>(&feats[6 * i], &feats[6 * i] + 6) == floats_of(row));
              REQUIRE(half[i] == 1 + static_cast<float>(row) / 1024);
            }
          }
        CHECK(rows == 600);
        CHECK(feeder.report().bad_records == 0);
        CHECK(feeder.report().last_epoch->verdict == EpochAudit::Verdict::holds);
        CHECK(feeder.try_records(600).failed == 0);
      }
}

TEST_CASE("check tries what records look up") {
  const Captions captions(40, {3, 5});
  const Feeder feeder(captions.pipeline(lookups() + batch_of(10, "DROP")));
  const TriedRecords tried = feeder.try_records(16);
  CHECK(tried.records == 16);
  CHECK(tried.failed == 2);
  REQUIRE(tried.errors.size() == 1);
  CHECK(tried.errors[0].place().record == 3);
  CHECK_THAT(tried.errors[0].message(), Catch::Contains("'gone-3'"));
}

TEST_CASE("the plan has the tables, each once, and what they take") {
  const Captions captions(40);
  const Feeder read(captions.pipeline(lookups() + batch_of(10, "DROP")));
  CHECK_THAT(read.plan_text(), Catch::Contains("table    floats.npy: 50 rows of FLOAT32 [2, 3], 1.2 KiB, read through "
                                               "the page cache, by name\n") &&
                                   Catch::Contains("memory   tables "));
  const Feeder resident(captions.pipeline(
      "output { name: 'a' feature: 'row' lookup { table: 'floats.npy' resident: true } } "
      "output { name: 'b' feature: 'row' dtype: FLOAT16 lookup { table: './floats.npy' resident: true } } " +
      batch_of(10, "DROP")));
  const std::string text = resident.plan_text();
  CHECK_THAT(text, Catch::Contains("memory   tables                         1 x    1.2 KiB"));
  CHECK(text.find("table    floats.npy") == text.rfind("table    floats.npy"));
  CHECK_THROWS_WITH(Feeder(captions.pipeline("output { name: 'a' feature: 'row' lookup { table: 'floats.npy' resident: "
                                             "true } } memory { limit: '1KiB' } " +
                                             batch_of(10, "DROP"))),
                    Catch::Contains("takes 1.2 KiB of memory"));
}

TEST_CASE("a table that is cut short while it is fed ends the feed with an error") {
  const Captions captions(600);
  const std::string floats = captions.dir().file("floats.npy");
  Feeder feeder(captions.pipeline(lookups() + batch_of(6, "DROP")));
  const Batch first = feeder.next();
  std::filesystem::resize_file(floats, 128);
  CHECK_THROWS_WITH(
      [&] {
        for (int step = 0; step < 200; step++) feeder.next();
      }(),
      Catch::Contains("floats.npy: has "));
}

TEST_CASE("ranks: the same rows where they travel, and tables that differ are refused") {
  const Captions captions(240, {17});
  const std::string where = GENERATE(as<std::string>(), "", "on_device: true");
  const Pipeline pipeline = captions.pipeline(lookups(where) + "errors { on_error: SKIP_RECORD } shuffle { seed: 3 } " +
                                              batch_of(12, "DROP"));
  for (const std::string mode : {"SPLIT", "REPLICATE", "SCATTER"})
    for (const int ranks : {1, 2, 3}) {
      INFO(mode << ", " << ranks << " ranks " << where);
      std::vector<std::unique_ptr<Communicator>> ends = communicators_between_threads(ranks);
      std::vector<std::vector<int64_t>> ids(static_cast<size_t>(ranks));
      const auto thrown = side_by_side(ranks, [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        Feeder feeder(pipeline.with("distribute.mode", mode), of_rank(std::move(ends[r]), 2));
        for (bool ended = false; !ended;)
          for (int replica = 0; replica < 2; replica++) {
            const Batch batch = feeder.next(replica);
            if ((ended = !batch)) continue;
            check_rows(batch, ids[r]);
          }
      });
      CHECK(thrown == std::vector<std::string>(static_cast<size_t>(ranks)));
      std::vector<int64_t> all;
      for (const auto& of_rank : ids) all.insert(all.end(), of_rank.begin(), of_rank.end());
      std::sort(all.begin(), all.end());
      std::vector<int64_t> wanted;
      for (const int64_t id : numbers(240))
        if (id != 17) wanted.insert(wanted.end(), mode == "REPLICATE" ? 2 * static_cast<size_t>(ranks) : 1, id);
      CHECK(all == wanted);
    }

  const Captions others(240);
  std::string names = name_of(1) + '\n' + name_of(0) + '\n';
  for (int64_t row = 2; row < table_rows; row++) names += name_of(row) + '\n';
  others.dir().write("names.txt", names);
  const Captions same(240);
  const std::string differs =
      "rank 1 differs from rank 0: output 'feats': table floats.npy of FLOAT32 [50, 2, 3], digest ";
  const auto refused = on_ranks(2, [&](int rank, Exchange exchange) {
    Options options = replicas(1);
    options.exchange = std::move(exchange);
    options.rank = rank;
    options.world_size = 2;
    const Feeder feeder((rank == 0 ? same : others).pipeline(lookups(where) + batch_of(12, "DROP")), options);
  });
  for (const std::string& what : refused) CHECK_THAT(what, Catch::Contains(differs));
  if (where.empty()) return;
  // A rank that reads nothing gathers from its own table.
  std::vector<std::unique_ptr<Communicator>> ends = communicators_between_threads(2);
  const auto apart = side_by_side(2, [&](int rank) {
    const Pipeline mine = (rank == 0 ? same : others).pipeline(lookups(where) + batch_of(12, "DROP"));
    const Feeder feeder(mine.with("distribute.mode", "REPLICATE"),
                        of_rank(std::move(ends[static_cast<size_t>(rank)]), 1));
  });
  for (const std::string& what : apart) CHECK_THAT(what, Catch::Contains(differs));
}

TEST_CASE("a rank that does not read has the tables of the rank that reads, or none is fed") {
  const std::string where = GENERATE(as<std::string>(), "", "on_device: true");
  const std::string mode = GENERATE(as<std::string>(), "REPLICATE", "SCATTER");
  INFO(mode << " " << where);
  const Captions captions(60);
  // The outputs' lookups of one rank, and what both ranks say of the other's.
  const auto refusals = [&](const Captions& other, const std::string& of_other) {
    std::vector<std::unique_ptr<Communicator>> ends = communicators_between_threads(2);
    return side_by_side(2, [&](int rank) {
      const Pipeline mine = rank == 0 ? captions.pipeline(lookups(where) + batch_of(12, "DROP"))
                                      : other.pipeline(of_other + batch_of(12, "DROP"));
      const Feeder feeder(mine.with("distribute.mode", mode), of_rank(std::move(ends[static_cast<size_t>(rank)]), 1));
    });
  };
  const Captions same(60);
  CHECK(refusals(same, lookups(where)) == std::vector<std::string>(2));

  const auto [type, shape, differs] = GENERATE(table<std::string, std::string, std::string>(
      {{"|u1", "(50, 1, 2)", "UINT8 [50, 1, 2]"}, {"|i1", "(50, 2)", "INT8 [50, 2]"}}));
  const Captions other(60);
  other.dir().write("bytes.npy", npy(type, shape, std::string(100, '\0')));
  for (const std::string& what : refusals(other, lookups(where)))
    CHECK_THAT(what, Catch::Contains("output 'scaled': table bytes.npy of " + differs));

  // Two outputs of one table on one rank, of two tables on the other.
  std::string of_copy = lookups(where);
  const std::string first = "table: 'floats.npy'";
  of_copy.replace(of_copy.rfind(first), first.size(), "table: 'copies.npy'");
  std::filesystem::copy(same.dir().file("floats.npy"), same.dir().file("copies.npy"));
  for (const std::string& what : refusals(same, of_copy))
    CHECK_THAT(what, Catch::Contains("rank 1 differs from rank 0: output 'same': table copies.npy"));

  std::filesystem::remove(other.dir().file("bytes.npy"));
  for (const std::string& what : refusals(other, lookups(where))) CHECK_THAT(what, Catch::Contains("bytes.npy"));
}

TEST_CASE("a table larger than the memory: rows come past the page cache, and memory stays small") {
  // The file has holes: it is larger than the memory of this machine, but takes as many blocks as have been written.
  constexpr int64_t row_bytes = 64 << 10, records = 8192, written = 64;
  const auto rows = static_cast<int64_t>(usable_memory()) / row_bytes + records;
  const TempDir dir;
  if (!passes_page_cache(dir)) return skip("the file system of temporary files has no O_DIRECT");
  const auto row_of = [&](int64_t record) { return record * (rows / records); };
  // What every byte of a record's row is: 0 in a hole.
  const auto byte_of = [&](int64_t record) {
    return record % (records / written) == 0 ? static_cast<char>(1 + record % 255) : '\0';
  };
  std::vector<std::string> all;
  for (int64_t i = 0; i < records; i++)
    all.push_back(wire::example(wire::entry("row", wire::int64_feature({row_of(i)}))));
  write_records(dir.file("records"), all);
  const std::string path =
      dir.write("table.npy", npy("|u1", "(" + std::to_string(rows) + ", " + std::to_string(row_bytes) + ")", ""));
  std::filesystem::resize_file(path, static_cast<uint64_t>(128 + rows * row_bytes));
  {
    std::fstream table(path, std::ios::in | std::ios::out | std::ios::binary);
    for (int64_t i = 0; i < records; i += records / written)
      table.seekp(128 + row_of(i) * row_bytes).write(std::string(row_bytes, byte_of(i)).data(), row_bytes);
    REQUIRE(table.flush());
  }
  forget(path);

  const Pipeline pipeline = parse_pipeline(
      "source { files: 'records' } feature { name: 'row' dtype: INT64 } output { name: 'table' feature: 'row' lookup { "
      "table: 'table.npy' } } output { name: 'at' feature: '@record' } " +
          batch_of(32, "DROP"),
      dir.path());
  const auto read_all = [&](const Options& options) {
    Feeder feeder(pipeline, options);
    INFO(feeder.plan_text());
    const bool through = feeder.plan_text().find("through the page cache") != std::string::npos;
    CHECK(through == (options.io.direct == Toggle::off));
    uint64_t most = 0;
    while (const Batch batch = feeder.next()) {
      const auto* const bytes = reinterpret_cast<const char*>(batch.at("table").data);
      for (int64_t i = 0; i < batch.rows(); i++) {
        const int64_t record = batch.at("at").as<int64_t>()[static_cast<size_t>(i)];
        const std::string_view row(bytes + i * row_bytes, row_bytes);
        REQUIRE(row.find_first_not_of(byte_of(record)) == std::string_view::npos);
      }
      most = std::max(most, resident_bytes());
    }
    return most;
  };
  const uint64_t before = resident_bytes();
  const uint64_t most = read_all(replicas(1));
  CHECK(most < before + (128 << 20));  // of 512 MiB that are read
  CHECK(cached_bytes(path) < 1 << 20);

  Options through;  // shows that these bytes would be seen
  through.io.direct = Toggle::off;
  read_all(through);
  CHECK(cached_bytes(path) >= records * row_bytes / 2);
}

TEST_CASE("a state goes on with the same rows") {
  const Captions captions(600);
  const Pipeline pipeline = captions.pipeline(lookups() + "shuffle { mode: GLOBAL } " + batch_of(20, "DROP"));
  Feeder whole(pipeline);
  const Texts all = epoch_of(whole);
  Feeder rest(pipeline.with("output.feats.lookup.resident", "true"));
  rest.set_state(whole.get_state(0, 13));
  const Texts got = epoch_of(rest);
  CHECK(got[0] == std::vector<std::string>(all[0].begin() + 13, all[0].end()));
}

TEST_CASE("any failing call: the rows are right, or the feed ends with the reason") {
  const LogLines unseen;
  const Captions captions(60);
  const Pipeline pipeline = captions.pipeline(lookups() + batch_of(10, "DROP"));
  int ended = 0;
  for (const Toggle direct : {Toggle::automatic, Toggle::on})
    for (SyscallHook* hook : SyscallHook::all())
      for (int64_t n = 1;; n += 1 + n / 3) {
        hook->fail_nth_call(n);
        try {
          Options options = replicas(1);
          options.io.direct = direct;
          options.threads = 2;
          Feeder feeder(pipeline, options);
          std::vector<int64_t> ids;
          while (const Batch batch = feeder.next()) check_rows(batch, ids);
          // Two faults that the audit finds are no system calls: a record that is left out, and one that comes twice.
          if (feeder.report().last_epoch->verdict == EpochAudit::Verdict::holds) CHECK(ids == numbers(60));
        } catch (const Error& error) {
          INFO(hook->name() << ": " << error.what());
          CHECK_FALSE(error.message().empty());
          ended++;
        } catch (const std::bad_alloc&) {
          ended++;
        }
        const bool made_fewer = hook->pending();
        hook->fail_nth_call(0);
        if (made_fewer) break;
      }
  CHECK(ended > 50);
}

TEST_CASE("past the page cache the rows are the same") {
  const Captions captions(600);
  const Pipeline pipeline = captions.pipeline(lookups() + "shuffle { mode: GLOBAL } " + batch_of(20, "DROP"));
  Feeder through(pipeline);
  const Texts wanted = epoch_of(through);
  for (const BackendKind backend : {BackendKind::automatic, BackendKind::pread}) {
    Options options = replicas(1);
    options.io = {.backend = backend, .direct = Toggle::on};
    try {
      Feeder past(pipeline, options);
      CHECK_THAT(past.plan_text(), Catch::Contains("floats.npy: 50 rows of FLOAT32 [2, 3], 1.2 KiB, read by ") &&
                                       Catch::Contains("O_DIRECT"));
      CHECK(epoch_of(past) == wanted);
    } catch (const Error& error) {
      if (error.message().find("refuses O_DIRECT") == std::string::npos) throw;
      return skip("the file system of temporary files refuses O_DIRECT");
    }
  }
}
