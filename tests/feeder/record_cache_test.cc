// The cache of records: the same batches, errors and audits with and without it, what it finds, and that it keeps no
// wrong byte.

#include <filesystem>

#include "base/byte_size.h"
#include "base/syscall_hooks.h"
#include "damage.h"
#include "data.h"
#include "distributed.h"
#include "flowgraph/data/file_pieces.h"
#include "flowgraph/plan/kept_pieces.h"
#include "support/catch.h"
#include "support/log_lines.h"
#include "support/process.h"

using namespace feedline;
using namespace feedline::test;

namespace {

namespace fs = std::filesystem;

const std::string block = "shuffle { mode: BLOCK buffer_size: 300 block_size: '16KiB' } seed: 4 ";
const std::vector<std::string> plain_orders = {"",
                                               block,
                                               "shuffle { mode: BUFFER buffer_size: 200 } seed: 4 ",
                                               "shuffle { mode: GLOBAL } seed: 4 ",
                                               "interleave { cycle_length: 3 block_length: 5 } ",
                                               "filter: 'mod(id, 97) == 1' ",
                                               "shuffle { mode: GLOBAL } filter: 'mod(id, 7) < 3' ",
                                               "epoch { repeat: 2 } "};
const std::vector<std::string> packed_orders = {"", block, "shuffle { mode: BUFFER buffer_size: 200 } seed: 4 ",
                                                "epoch { repeat: 2 } ", "filter: 'mod(id, 5) == 1' "};

std::string cache(const std::string& where, const std::string& limit) {
  return "cache { where: " + where + " what: RECORDS limit: '" + limit + "'" +
         (where == "DISK" ? " dir: 'kept' } " : " } ");
}

Pipeline pipeline_of(const Data& data, const std::string& more) {
  return data.pipeline(outputs + "errors { on_error: SKIP_RECORD } " + more + batch_of(64, "PAD"))
      .with("source.index.stride", "2KiB");
}

struct Fed {
  Texts texts;
  Report report;
};

Fed fed(const Pipeline& pipeline, const Options& options, int epochs) {
  Feeder feeder(pipeline, options);
  Fed all;
  for (int epoch = 0; epoch < epochs; epoch++) {
    const Texts texts = epoch_of(feeder);
    all.texts.insert(all.texts.end(), texts.begin(), texts.end());
  }
  all.report = feeder.report();
  return all;
}

void check_same(const Fed& plain, const Fed& cached) {
  REQUIRE(cached.texts == plain.texts);
  CHECK(cached.report.bad_records == plain.report.bad_records);
  REQUIRE(cached.report.errors.size() == plain.report.errors.size());
  for (size_t e = 0; e < plain.report.errors.size(); e++)
    CHECK(std::string(cached.report.errors[e].what()) == plain.report.errors[e].what());
  REQUIRE(cached.report.last_epoch.has_value() == plain.report.last_epoch.has_value());
  if (plain.report.last_epoch) {
    CHECK(cached.report.last_epoch->verdict == plain.report.last_epoch->verdict);
    CHECK(cached.report.last_epoch->delivered == plain.report.last_epoch->delivered);
  }
}

std::vector<fs::path> cache_files(const Data& data) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(data.dir().file("kept"))) files.push_back(entry.path());
  return files;
}

}  // namespace

TEST_CASE("batches, errors and audits with a cache of records are those without one") {
  const Data plain({900, 0, 1, 1500, 40}), packed({900, 0, 1, 700, 40}, Compression::gzip);
  const Data damaged({900, 1200}), damaged_packed({900, 0, 700}, Compression::gzip);
  for (const int64_t record : {700, 21, 20}) flip(damaged.path(1), offset_of(damaged.path(1), record) + 12 + 9);
  {
    std::vector<std::string> records;  // a compressed file with a damaged record
    for (int64_t id = 900; id < 1600; id++) records.push_back(sample(id));
    write_records(damaged_packed.dir().file("bare"), records);
    flip(damaged_packed.dir().file("bare"), offset_of(damaged_packed.dir().file("bare"), 333) + 12 + 9);
    const std::string path = damaged_packed.path(2);
    REQUIRE(std::system(("gzip -c '" + damaged_packed.dir().file("bare") + "' > '" + path + "'").c_str()) == 0);
  }
  Options two = replicas(2), direct;
  two.threads = 3;
  direct.threads = 1;
  direct.io.direct = Toggle::on;
  for (const Data* data : {&plain, &packed, &damaged, &damaged_packed}) {
    const bool is_packed = data == &packed || data == &damaged_packed;
    for (const std::string& order : is_packed ? packed_orders : plain_orders)
      for (const char* limit : {"10MiB", "150KiB"})
        for (const char* where : {"MEMORY", "DISK"}) {
          INFO(order << limit << where << is_packed << (data == &damaged || data == &damaged_packed));
          fs::remove_all(data->dir().file("kept"));
          for (const Options& options : {two, direct}) {  // with DISK the second one finds what the first has kept
            const Pipeline bare = pipeline_of(*data, order);
            const Fed without = fed(bare, options, 3),
                      with = fed(pipeline_of(*data, order + cache(where, limit)), options, 3);
            check_same(without, with);
            REQUIRE(with.report.cache_share.has_value());
            CHECK(with.report.cache_hits + with.report.cache_misses > 0);
          }
        }
  }
}

TEST_CASE("compressed files of every kind are fed alike with a cache of records") {
  TempDir dir;
  int fed_files = 0;
  for (const auto& entry : fs::directory_iterator(FEEDLINE_GOLDEN "/compression")) {
    if (entry.path().extension() != ".tfrecord") continue;
    INFO(entry.path());
    const auto run = [&](const std::string& more) -> std::optional<Fed> {
      try {
        return fed(parse_pipeline("source { files: '" + entry.path().string() +
                                      "' record_type: RAW index { dir: 'indexes' stride: '1KiB' } } "
                                      "feature { name: 'record' dtype: BYTES } errors { on_error: SKIP_RECORD } " +
                                      more + batch_of(7, "PAD"),
                                  dir.path()),
                   {}, 3);
      } catch (const Error&) {
        return std::nullopt;
      }
    };
    const std::optional<Fed> without = run(""), with = run(cache("MEMORY", "100MiB"));
    REQUIRE(without.has_value() == with.has_value());
    if (!without) continue;
    check_same(*without, *with);
    if (with->report.cache_share > 0) fed_files++;
  }
  CHECK(fed_files > 10);
}

TEST_CASE("the stated share of the samples is found in every later epoch, and no more is read") {
  const Data plain({3000, 700, 2500}), packed({500, 600, 700, 800, 900, 400}, Compression::gzip);
  for (const Data* data : {&plain, &packed})
    for (const std::string& order : data == &packed ? std::vector<std::string>{""} : plain_orders)
      for (const char* limit : {"250KiB", "500KiB", "10MiB"}) {
        if (order.find("filter") != std::string::npos || order.find("repeat") != std::string::npos) continue;
        INFO(order << limit << (data == &packed));
        Options options;
        options.threads = 1;
        Feeder feeder(pipeline_of(*data, order + cache("MEMORY", limit)), options);
        for (int epoch = 0; epoch < 2; epoch++) epoch_of(feeder);
        const Report filled = feeder.report();
        CHECK((filled.cache_share.value() == 1) == (std::string(limit) == "10MiB"));
        CHECK(filled.cache_share.value() > 0.1);
        CHECK(filled.cache_bytes <= parse_byte_size(limit));
        feeder.set_epoch(5);  // its counts begin at 0, and what was kept is still there
        for (int epoch = 0; epoch < 20; epoch++) epoch_of(feeder);
        const Report found = feeder.report();
        // What is read ahead of the 21st epoch counts, too. BUFFER reads some samples twice.
        const double rate =
            static_cast<double>(found.cache_hits) / static_cast<double>(found.cache_hits + found.cache_misses);
        CHECK(std::abs(rate - found.cache_share.value()) < 0.04);
        CHECK(found.cache_entries == filled.cache_entries);
        if (found.cache_share.value() == 1) CHECK(found.cache_misses == 0);
        if (found.cache_share.value() == 1) CHECK(feeder.report().read_bytes == 0);
        if (order.empty() || order == block) {
          const auto samples = static_cast<double>(data->count());
          CHECK(static_cast<double>(found.cache_hits) >= 20 * found.cache_share.value() * samples - 0.5);
          CHECK(static_cast<double>(found.cache_misses) >= 20 * (1 - found.cache_share.value()) * samples - 0.5);
        }
      }
}

TEST_CASE("a compressed file is kept whole, or inflated in every epoch") {
  const Data data({800, 800, 800, 800}, Compression::gzip);
  Feeder feeder(pipeline_of(data, cache("MEMORY", "300KiB")));
  const double files = feeder.report().cache_share.value() * 4;
  CHECK(files == std::floor(files));
  CHECK(files >= 1);
  CHECK(files < 4);
  CHECK_THAT(feeder.plan_text(),
             Catch::Contains(std::to_string(static_cast<int>(files)) + " of 4 compressed files are kept inflated"));
  CHECK_THAT(feeder.plan_text(), !Catch::Contains("uncompressed files"));
}

TEST_CASE("with a cache of records, a feed goes on in the middle of an epoch, and ranks find each other's records") {
  const Data plain({900, 0, 1500}), packed({900, 0, 700}, Compression::gzip);
  for (const Data* data : {&plain, &packed})
    for (const std::string& order : data == &packed ? packed_orders : plain_orders)
      for (const std::string window : {"", "window { size: 3 shift: 2 stride: 2 } "})
        for (const auto& [where, limit] : {std::pair("MEMORY", "150KiB"), std::pair("DISK", "4MiB")}) {
          if (std::string(where) == "DISK" && !window.empty()) continue;  // each feeder waits for the disk
          const auto text = [&](const std::string& with) {
            return data
                ->pipeline("output { name: 'id' feature: 'id' } output { name: 'where' feature: '@offset' } " + order +
                           window + with + batch_of(48, "PARTIAL"))
                .with("source.index.stride", "2KiB");
          };
          INFO(order << window << where << limit << (data == &packed));
          fs::remove_all(data->dir().file("kept"));
          Feeder bare(text("")), cached(text(cache(where, limit)));
          for (const int64_t step : {7, 3, 0, 15}) {
            const std::string state = bare.get_state(1, std::min(step, bare.steps_per_epoch()));
            bare.set_state(state);
            cached.set_state(state);
            REQUIRE(epoch_of(cached) == epoch_of(bare));
          }
          std::vector<Texts> apart, together;
          for (const std::string& with : {std::string(), cache(where, limit)}) {
            std::vector<std::unique_ptr<Feeder>> feeders;
            for (int rank = 0; rank < 3; rank++) {
              Options options = replicas(2);
              options.rank = rank;
              options.world_size = 3;
              feeders.push_back(std::make_unique<Feeder>(text(with), options));
            }
            for (int epoch = 0; epoch < 3; epoch++)
              for (auto& feeder : feeders) (with.empty() ? apart : together).push_back(epoch_of(*feeder));
          }
          REQUIRE(together == apart);
        }
}

TEST_CASE("a later run finds the records on the disk, unless the data or its cut has changed") {
  const Data data({900, 700}, Compression::gzip);
  const std::string on_disk = cache("DISK", "1MiB");
  const auto run = [&](const std::string& more) {
    const Fed with = fed(pipeline_of(data, more + on_disk), replicas(2), 2);
    check_same(fed(pipeline_of(data, more), replicas(2), 2), with);
    return with.report;
  };
  CHECK(run("").cache_entries > 100);
  const Report again = run("");
  CHECK(again.cache_entries == 0);
  CHECK(again.cache_misses == 0);
  CHECK(again.read_bytes == 0);
  REQUIRE(cache_files(data).size() == 1);
  const Report other_steps = run("output { name: 'more' feature: 'id' } ");  // steps make no difference to records
  CHECK(other_steps.cache_misses == 0);
  const Report half = run("filter: 'id < 800' ");
  CHECK(half.cache_entries > 0);
  CHECK(cache_files(data).size() == 2);  // another choice of records has a file of its own
  CHECK(run("").cache_misses == 0);
  std::vector<std::string> records;
  for (int64_t id = 0; id < 700; id++) records.push_back(sample(7000 + id));
  write_records(data.path(1), records, Compression::gzip);
  CHECK(run("").cache_entries > 0);
  CHECK(cache_files(data).size() == 2);
}

TEST_CASE("a later run finds records that are longer than the stride of the index") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 40; id++)
    records.push_back(wire::example(wire::entry("id", wire::int64_feature({id})) +
                                    wire::entry("b", wire::bytes_feature({std::string(20'000, 'x')}))));
  write_records(dir.file("data"), records);
  const Pipeline pipeline =
      parse_pipeline("source { files: 'data' index { stride: '2KiB' } } feature { name: 'id' dtype: INT64 } " +
                         cache("DISK", "10MiB") + batch_of(8, "DROP"),
                     dir.path());
  const Fed first = fed(pipeline, {}, 2), second = fed(pipeline, {}, 1);
  REQUIRE(second.report.cache_share);
  CHECK(second.report.cache_misses == 0);
  CHECK(second.report.cache_hits > 0);
  CHECK(second.texts[0] == first.texts[0]);
}

TEST_CASE("data of the same size and time that took the place of other data is fed, and found by the audit") {
  const TempDir dir;
  const auto write = [&](int64_t first) {
    std::vector<std::string> records;
    for (int64_t id = first; id < first + 100; id++)
      records.push_back(wire::example(wire::entry("id", wire::int64_feature({id})) +
                                      wire::entry("pad", wire::bytes_feature({std::string(12'000, 'x')}))));
    write_records(dir.file("a"), records);  // large enough for an index that is kept, and believed
    fs::last_write_time(dir.file("a"), fs::file_time_type(std::chrono::seconds(1)));
  };
  const auto pipeline = [&](const std::string& kept) {
    return parse_pipeline("source { files: 'a' } feature { name: 'id' dtype: INT64 } " + kept + batch_of(10, "DROP"),
                          dir.path());
  };
  write(200);
  fed(pipeline(cache("DISK", "4MiB")), {}, 2);
  write(1000);
  const Fed plain = fed(pipeline(""), {}, 2), cached = fed(pipeline(cache("DISK", "4MiB")), {}, 2);
  CHECK(cached.texts == plain.texts);
  REQUIRE(plain.report.last_epoch);
  CHECK(plain.report.last_epoch->verdict == EpochAudit::Verdict::differs);
  CHECK(cached.report.last_epoch->verdict == EpochAudit::Verdict::differs);
}

TEST_CASE("a wrong byte of a record in the file is never fed") {
  for (const Compression compression : {Compression::gzip, Compression::none}) {
    const Data data({900, 700}, compression);
    const Pipeline pipeline = pipeline_of(data, cache("DISK", "1MiB"));
    const Texts right = fed(pipeline_of(data, ""), {}, 1).texts;
    fed(pipeline, {}, 1);
    for (int i = 0; i < 20; i++) {
      const fs::path file = cache_files(data).at(0);
      flip(file, static_cast<uint64_t>(i) * fs::file_size(file) / 20 + 17);
      REQUIRE(fed(pipeline, replicas(1 + i % 2), 1).texts.size() > 0);
      REQUIRE(fed(pipeline, {}, 1).texts == right);
    }
  }
}

TEST_CASE("rows of a compressed chunk that is damaged on the disk are not counted as found") {
  const Data data({300}, Compression::gzip);  // one chunk
  const Pipeline pipeline = pipeline_of(data, cache("DISK", "1MiB"));
  fed(pipeline, {}, 1);
  CHECK(fed(pipeline, {}, 1).report.cache_hits >= 300);
  uint64_t missed = 0;
  for (uint64_t i = 0; i < 10; i++) {
    const fs::path file = cache_files(data).at(0);
    flip(file, i * fs::file_size(file) / 10 + 17);
    const Report report = fed(pipeline, {}, 1).report;
    CHECK(report.cache_hits % 300 == 0);
    missed += report.cache_misses;
  }
  CHECK(missed > 0);
}

TEST_CASE("records that were read damaged are not kept, and bad ones are reported in every epoch") {
  for (const std::string& order : {std::string(), block, std::string("shuffle { mode: GLOBAL } seed: 4 ")}) {
    const Data data({8000});  // large enough for an index on the disk
    const std::string text = order + "parallelism { threads: 1 host_prefetch: 1 } ";
    { Feeder counts(pipeline_of(data, text)); }
    HiddenDamage damage(data.path(0));
    const uint64_t at = offset_of(data.path(0), 300) + 12 + 9;
    damage.flip(at);
    Feeder bare(pipeline_of(data, text)), cached(pipeline_of(data, text + cache("MEMORY", "1MiB")));
    for (int epoch = 0; epoch < 2; epoch++) REQUIRE(epoch_of(cached) == epoch_of(bare));
    CHECK(cached.report().bad_records > 0);
    CHECK(cached.report().cache_misses > 0);
    damage.flip(at);  // the file is good again, and so is what comes of it
    Feeder good(pipeline_of(data, text));
    const Texts right = epoch_of(good);
    cached.set_epoch(0);
    REQUIRE(epoch_of(cached) == right);
  }
}

TEST_CASE("a disk that fails or is full costs the cache of records, not the feed") {
  const Data plain({400}), packed({400}, Compression::gzip);
  for (const Data* data : {&plain, &packed}) {
    const Texts right = fed(pipeline_of(*data, ""), {}, 2).texts;
    for (const char* name : {"open a cache", "write to a cache", "write short to a cache", "read from a cache",
                             "fdatasync of a cache", "lock of a cache"})
      for (int64_t n = 1; n <= 40; n += n < 4 ? 1 : 12) {
        INFO(name << " " << n);
        const LogLines log;
        if (n % 2 == 1) fs::remove_all(data->dir().file("kept"));
        SyscallHook& hook = *find_hook(name);
        hook.fail_nth_call(n);
        const Texts texts = fed(pipeline_of(*data, cache("DISK", "1MiB")), {}, 2).texts;
        hook.fail_nth_call(0);
        REQUIRE(texts == right);
        CHECK(log.lines().size() <= 1);
      }
  }
}

TEST_CASE("a plan says what a cache of records pays for, and counts its memory") {
  const Data plain({3000}), packed({900}, Compression::gzip);
  const Feeder feeder(pipeline_of(plain, cache("MEMORY", "300KiB")));
  CHECK_THAT(feeder.plan_text(), Catch::Contains("cache    RECORDS: "));
  CHECK_THAT(feeder.plan_text(), Catch::Contains("otherwise it\n         only copies what the page cache holds"));
  CHECK_THAT(feeder.plan_text(), Catch::Contains("memory   cache"));
  const auto why = [&](const Data& data, const std::string& more) -> std::string {
    try {
      Feeder refused(pipeline_of(data, more));
      return "nothing";
    } catch (const Error& error) {
      CHECK(error.category() == Category::bad_pipeline);
      return error.message();
    }
  };
  CHECK_THAT(why(packed, cache("MEMORY", "20KiB")), Catch::Contains("cannot hold one whole compressed file"));
  CHECK_THAT(why(plain, cache("MEMORY", "1KiB")), Catch::Contains("cannot hold one part of a file"));
  // Only where the plan would fit without a cache would a smaller one help.
  const auto with_limit = [&](int64_t bytes) {
    return why(plain, cache("MEMORY", "1GiB") + "memory { limit: '" + std::to_string(bytes) + "' } ");
  };
  const std::string little = with_limit(100 << 10);
  CHECK_THAT(little, !Catch::Contains("cache.limit"));
  const size_t at = little.find("at least \"");
  REQUIRE(at != little.npos);
  const int64_t enough = static_cast<int64_t>(std::stoi(little.substr(at + 10))) << 20;
  bool told = false;
  for (int64_t less = 64 << 10; less <= 1 << 20; less += 64 << 10)
    told |= with_limit(enough - less).find("or set a smaller cache.limit") != std::string::npos;
  CHECK(told);
}

TEST_CASE("if nothing is kept, the unit that does not fit is named") {
  constexpr uint64_t mebibyte = 1 << 20;
  int none_kept = 0;
  for (const size_t large : {0, 1}) {  // one of the two files comes first in the random order
    flow::DataSet data;
    for (size_t f = 0; f < 2; f++) {
      flow::DataFile& file = data.files.emplace_back();
      file.index.compression = Compression::gzip;
      file.index.entries = std::vector<io::IndexEntry>{{0, 0}, {f == large ? 50 * mebibyte : mebibyte, 10}};
      file.samples = flow::Selection(0, 10);
    }
    flow::KeptPieces pieces(data);
    pieces.keep(100 * mebibyte, 10 * mebibyte, 32);
    if (pieces.samples() > 0) continue;
    none_kept++;
    CHECK(pieces.too_large().bytes == 50 * mebibyte);
    CHECK(pieces.too_large().compressed);
  }
  CHECK(none_kept == 1);
}

TEST_CASE("pieces are what lies between the places that an index knows, and around bad regions") {
  io::FileIndex index;
  index.entries = io::Table<io::IndexEntry>({{100, 0}, {1100, 5}, {1100, 5}, {3000, 9}, {5000, 20}});
  index.bad.resize(2);
  index.bad[0].offset = 1500, index.bad[0].length = 100, index.bad[0].record = 7;
  index.bad[1].offset = 2000, index.bad[1].length = 1000, index.bad[1].record = 9;
  std::vector<std::vector<uint64_t>> found;
  const auto all = [&](uint64_t from, uint64_t until) {
    found.clear();
    flow::for_each_piece(index, from, until, [&](const flow::Piece& piece) {
      found.push_back({piece.number, piece.offset, piece.bytes, piece.first_record, piece.end_record});
    });
    return found;
  };
  using Pieces = std::vector<std::vector<uint64_t>>;
  CHECK(all(100, 5000) ==
        Pieces{{0, 100, 1000, 0, 5}, {2, 1100, 400, 5, 7}, {3, 1600, 400, 7, 9}, {5, 3000, 2000, 9, 20}});
  CHECK(all(1600, 2000) == Pieces{{3, 1600, 400, 7, 9}});
  CHECK(all(1100, 1500) == Pieces{{2, 1100, 400, 5, 7}});
  CHECK(all(3000, 5000) == Pieces{{5, 3000, 2000, 9, 20}});
  CHECK(all(5000, 5000).empty());
}
