// index.mode LAZY: uncounted files are fed at once, as if they had been counted, and are counted while they are read.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include "damage.h"
#include "data.h"
#include "flowgraph/chunk/lazy_reader.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/plan/plan.h"
#include "support/catch.h"
#include "support/memory_source.h"

using namespace feedline;
using namespace feedline::test;

namespace {

// Returns a record of 30 to 300 bytes; one in 2000 has 700 KB.
std::string record_of(int64_t id, std::mt19937& random) {
  const size_t size = random() % 2000 == 0 ? 700'000 : random() % 270;
  return wire::example(wire::entry("id", wire::int64_feature({id})) +
                       wire::entry("b", wire::bytes_feature({std::string(size, 'b')})));
}

class Uncounted {
 public:
  Uncounted(const std::vector<int64_t>& sizes, Compression compression, uint64_t seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    int64_t id = 0;
    for (size_t f = 0; f < sizes.size(); f++) {
      std::vector<std::string> records;
      for (int64_t i = 0; i < sizes[f]; i++) records.push_back(record_of(id++, random));
      write_records(path(f), records, f % 2 == 1 ? compression : Compression::none);
      bytes_ += std::filesystem::file_size(path(f));
    }
  }
  std::string path(size_t file) const { return dir_.file("part-" + std::to_string(file)); }
  uint64_t bytes() const { return bytes_; }

  Pipeline pipeline(const std::string& mode, const std::string& more) const {
    return parse_pipeline("source { files: 'part-*' record_limit: '1MiB' index { mode: " + mode + " dir: '" + mode +
                              "' } } feature { name: 'id' dtype: INT64 } " + more,
                          dir_.path());
  }
  /// Returns the indexes that a mode has stored: names and contents.
  std::map<std::string, std::string> indexes(const std::string& mode) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.file(mode))) {
      std::ifstream in(entry.path(), std::ios::binary);
      all[entry.path().filename()] = std::string(std::istreambuf_iterator<char>(in), {});
    }
    return all;
  }

 private:
  TempDir dir_;
  uint64_t bytes_ = 0;
};

/// Files in memory that say when they are read.
class WatchedFiles final : public MemorySource {
 public:
  WatchedFiles(Files files, const std::function<void()>& on_read) : MemorySource(std::move(files)), on_read_(on_read) {}
  std::shared_ptr<const io::SourceFile> open(const std::string& uri) const override {
    return std::make_shared<const File>(MemorySource::open(uri), on_read_);
  }

 private:
  struct File final : io::SourceFile {
    File(std::shared_ptr<const io::SourceFile> file, const std::function<void()>& on_read)
        : file_(std::move(file)), on_read_(on_read) {}
    const std::string& path() const noexcept override { return file_->path(); }
    uint64_t size() const noexcept override { return file_->size(); }
    uint64_t version() const noexcept override { return file_->version(); }
    void check_unchanged() const override {}
    void read_at(uint64_t offset, std::span<std::byte> into) const override {
      on_read_();
      file_->read_at(offset, into);
    }
    const std::shared_ptr<const io::SourceFile> file_;
    const std::function<void()>& on_read_;
  };
  const std::function<void()>& on_read_;
};

// Returns everything that the replicas are given in the next epochs, in turn: steps, rows (-1: filler), ends, and the
// error.
std::vector<std::string> said(Feeder& feeder, int epochs) {
  std::vector<std::string> all;
  try {
    for (int epoch = 0; epoch < epochs; epoch++)
      for (bool more = true; more;)
        for (int replica = 0; replica < feeder.replicas(); replica++) {
          const Batch batch = feeder.next(replica);
          more = static_cast<bool>(batch);
          all.push_back(more ? fmt::format("{} of {}:", batch.step(), batch.epoch()) : "end");
          if (!more) continue;
          const auto ids = batch.at("id").as<int64_t>();
          const auto valid = batch.at("@valid").as<const bool>();
          for (size_t row = 0; row < ids.size(); row++) all.back() += fmt::format(" {}", valid[row] ? ids[row] : -1);
        }
  } catch (const Error& error) {
    all.push_back(error.what());
  }
  return all;
}

}  // namespace

TEST_CASE("a file that is cut in its first record is told alike, lazily or counted") {
  const TempDir dir;
  write_records(dir.file("part"), {std::string(1000, 'x')});
  std::filesystem::resize_file(dir.file("part"), 500);
  std::vector<std::string> said;
  for (const std::string mode : {"BUILD", "LAZY"}) try {
      Feeder(parse_pipeline("source { files: 'part' record_type: RAW index { mode: " + mode + " dir: '" + mode +
                                "' } } feature { name: 'record' dtype: BYTES } " + batch_of(1, "DROP"),
                            dir.path()))
          .next();
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.category() == Category::truncated_data);
      said.push_back(error.what());
    }
  REQUIRE(said.size() == 2);
  CHECK(said[0] == said[1]);
}

TEST_CASE("a lazy feed says what a counted one says, and keeps the same indexes") {
  std::mt19937 random(5);
  for (int round = 0; round < 24; round++) {
    std::vector<int64_t> sizes(1 + random() % 5);
    for (int64_t& size : sizes) size = random() % 4 == 0 ? 0 : static_cast<int64_t>(random() % 2500);
    const Uncounted data(sizes, round % 3 == 0 ? Compression::gzip : Compression::none, random());
    const int count = 1 + static_cast<int>(random() % 3);
    const std::string batch =
        fmt::format("epoch {{ allow_empty: true }} batch {{ batch_size_per_replica: {} last_batch_policy: {} }}",
                    1 + random() % 40, std::array{"DROP", "PARTIAL", "PAD"}[random() % 3]);
    INFO(round << ": " << sizes.size() << " files, " << count << " replicas, " << batch);
    Feeder counted(data.pipeline("BUILD", batch), replicas(count)), lazy(data.pipeline("LAZY", batch), replicas(count));
    CHECK(lazy.steps_per_epoch() == -1);
    CHECK(lazy.samples_per_epoch() == -1);
    CHECK(said(lazy, 1) == said(counted, 1));
    CHECK(lazy.steps_per_epoch() == counted.steps_per_epoch());
    CHECK(lazy.samples_per_epoch() == counted.samples_per_epoch());
    CHECK(data.indexes("LAZY") == data.indexes("BUILD"));
    CHECK(said(lazy, 2) == said(counted, 2));
    CHECK(lazy.report().dropped_samples == counted.report().dropped_samples);
    CHECK(lazy.report().audit == counted.report().audit);
    REQUIRE(lazy.report().last_epoch);
    CHECK(lazy.report().last_epoch->verdict == EpochAudit::Verdict::holds);
    CHECK(lazy.get_state() == counted.get_state());

    lazy.set_epoch(3);  // from here on it uses the indexes
    CHECK(said(lazy, 1) == said(counted, 1));

    Feeder again(data.pipeline("LAZY", batch), replicas(count));
    CHECK(again.steps_per_epoch() == counted.steps_per_epoch());
    again.set_state(counted.get_state());
    CHECK(said(again, 1) == said(counted, 1));
  }
}

TEST_CASE("damage is met by a lazy feed where a counted one meets it") {
  std::mt19937 random(9);
  for (int round = 0; round < 24; round++) {
    const Uncounted data({900, 0, 1200, 300}, round % 4 == 3 ? Compression::gzip : Compression::none, random());
    for (int places = 1 + static_cast<int>(random() % 3); places > 0; places--) {
      const std::string file = data.path(std::array{0, 2, 3}[random() % 3]);
      if (random() % 4 == 0)
        std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1 - random() % 40);
      else
        flip(file, random() % std::filesystem::file_size(file));
    }
    const std::string batch = fmt::format("batch {{ global_batch_size: {} last_batch_policy: {} }} ",
                                          4 * (1 + random() % 20), std::array{"DROP", "PARTIAL", "PAD"}[random() % 3]);
    for (const std::string errors : {"", "errors { on_error: SKIP_RECORD }"})
      for (const bool unfinished : {false, true}) {
        INFO(round << ": " << batch << errors);
        Options options = replicas(2);
        options.deliver_before_error = unfinished;
        Feeder counted(data.pipeline("BUILD", batch + errors), options);
        Feeder lazy(data.pipeline("LAZY", batch + errors), options);
        CHECK(said(lazy, 2) == said(counted, 2));
        if (errors.empty()) continue;
        CHECK(data.indexes("LAZY") == data.indexes("BUILD"));
        CHECK(lazy.report().bad_records == counted.report().bad_records);
        REQUIRE(lazy.report().last_epoch);
        CHECK(lazy.report().last_epoch->verdict == EpochAudit::Verdict::holds);
        std::filesystem::remove_all(std::filesystem::path(data.path(0)).parent_path() / "LAZY");
      }
  }
}

TEST_CASE("max_failures ends a lazy feed; a record that is no Example is filler, or raised") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 50; id++) records.push_back(id % 20 == 7 ? std::string("no Example") : sample(id));
  write_records(dir.file("part"), records);
  flip(dir.file("part"), offset_of(dir.file("part"), 44) + 20);
  const auto fed = [&](const std::string& mode, const std::string& errors) {
    Feeder feeder(
        parse_pipeline("source { files: 'part' record_limit: '1KiB' index { mode: " + mode + " dir: '" + mode +
                           "' } } feature { name: 'id' dtype: INT64 } batch { global_batch_size: 5 } " + errors,
                       dir.path()));
    return said(feeder, 1);
  };
  CHECK(fed("LAZY", "") == fed("BUILD", ""));
  std::filesystem::remove_all(dir.file("LAZY"));
  CHECK(fed("LAZY", "errors { on_error: SKIP_RECORD max_failures: 4 }") ==
        fed("BUILD", "errors { on_error: SKIP_RECORD max_failures: 4 }"));
  std::filesystem::remove_all(dir.file("LAZY"));
  const auto three = fed("LAZY", "errors { on_error: SKIP_RECORD max_failures: 2 }");
  CHECK_THAT(three.back(), Catch::Contains("3 bad records were found, but errors.max_failures allows 2"));
}

TEST_CASE("a record that is longer than its file was ends the data after the records before it") {
  const Uncounted data({3}, Compression::none, 1);
  const flow::PipelineSpec spec = flow::validate(data.pipeline("LAZY", batch_of(1, "DROP")));
  const flow::Plan plan(spec, flow::count_data(spec, 1, {}), {}, 1);
  const uint64_t size = std::filesystem::file_size(data.path(0));
  const TempDir longer;
  write_records(longer.file("more"), {std::string(size + 1, 'x')});
  std::ofstream(data.path(0), std::ios::binary | std::ios::app)
      << std::ifstream(longer.file("more"), std::ios::binary).rdbuf();
  flow::LazyReader reader(plan);
  std::vector<std::byte> memory(plan.memory.slot_data_bytes);
  flow::Chunk chunk(0, memory, {});
  reader.fill(chunk);
  CHECK(chunk.ticket.rows == 3);
  CHECK_FALSE(chunk.failed);
  reader.fill(chunk);
  CHECK(chunk.ticket.rows == 0);
  REQUIRE(chunk.failed);
  CHECK(chunk.failed->category() == Category::io_error);
  CHECK(chunk.failed->place() == Place{data.path(0), static_cast<int64_t>(size), 3, {}});
}

TEST_CASE("a lazy reader that is stopped reads no more, not even to find the end of damage") {
  std::function<void()> on_read = [] {};
  const TempDir indexes;
  const WatchedFiles source({{"memory://b/part", std::string(8 << 20, 'x')}}, on_read);
  const Mounted mounted(source);
  const flow::PipelineSpec spec = flow::validate(parse_pipeline(
      "source { files: 'memory://b/part' record_limit: '1MiB' index { mode: LAZY dir: '" + indexes.path() +
      "' } } feature { name: 'id' dtype: INT64 } errors { on_error: SKIP_RECORD } " + batch_of(1, "DROP")));
  const flow::Plan plan(spec, flow::count_data(spec, 1, {}), {}, 1);
  flow::LazyReader reader(plan);
  int reads = 0;
  on_read = [&] {
    if (++reads == 4) reader.stop();
  };
  std::vector<std::byte> memory(plan.memory.slot_data_bytes);
  flow::Chunk chunk(0, memory, {});
  reader.fill(chunk);
  CHECK(reader.ended());
  CHECK(chunk.ticket.rows == 0);
  CHECK(reads == 4);
}

TEST_CASE("a lazy feed keeps a bounded list of damage") {
  const TempDir dir;
  std::string content, bad(16, '\0');  // an empty record with a wrong checksum
  write_records(dir.file("part"), {sample(0)});
  write_records(dir.file("empty"), {""});
  std::ifstream(dir.file("empty"), std::ios::binary).read(bad.data(), 16);
  bad.back() = static_cast<char>(bad.back() ^ 1);
  for (int i = 0; i < 100'000; i++) content += bad;
  std::ofstream(dir.file("part"), std::ios::binary | std::ios::app) << content;
  const auto fed = [&](const std::string& limits) {
    std::filesystem::remove_all(dir.file("indexes"));
    Feeder feeder(
        parse_pipeline("source { files: 'part' record_limit: '1KiB' index { mode: LAZY dir: 'indexes' } } "
                       "feature { name: 'id' dtype: INT64 } batch { global_batch_size: 1 } memory { limit: "
                       "'16MiB' } errors { on_error: SKIP_RECORD " +
                           limits + " }",
                       dir.path()));
    return said(feeder, 1).back();
  };
  CHECK_THAT(fed("max_failures: 2"), Catch::Contains("3 bad records were found, but errors.max_failures allows 2"));
  CHECK_THAT(fed(""), Catch::Contains("damaged places takes more than half of the limit of 16 MiB"));
}

TEST_CASE("a lazy feed reads each byte once in an epoch") {
  const Data data({120'000, 120'000});
  uint64_t bytes = 0;
  for (const size_t file : {0, 1}) bytes += std::filesystem::file_size(data.path(file));
  Feeder feeder(data.pipeline("batch { global_batch_size: 200 }")
                    .with("source.index.mode", "LAZY")
                    .with("source.record_limit", "1KiB")
                    .with("parallelism.threads", "2"));
  int64_t records = 0;
  while (const Batch batch = feeder.next()) {
    records += batch.rows();
    // Data that is read ahead, also of the next epoch, takes at most 16 slots.
    CHECK(feeder.report().read_bytes <= static_cast<uint64_t>(records) * bytes / 240'000 + bytes / 2);
  }
  CHECK(records == 240'000);
  CHECK(feeder.report().read_bytes >= bytes);
  CHECK(feeder.report().read_bytes < bytes + bytes / 2);
}

TEST_CASE("a lazy feed ends at any moment, also in the midst of its first epoch") {
  const Uncounted data({3000, 2000}, Compression::gzip, 3);
  Batch held;  // outlives its feeder
  for (int batches = 0; batches < 60; batches++) {
    std::filesystem::remove_all(std::filesystem::path(data.path(0)).parent_path() / "LAZY");
    Feeder lazy(data.pipeline("LAZY", "batch { global_batch_size: 200 }"), replicas(2));
    for (int batch = 0; batch < batches; batch++) held = lazy.next(batch % 2);
    if (batches % 3 == 0) lazy.stop();
    if (batches % 3 == 1) lazy.set_epoch(7);
    if (!held) continue;
    const auto ids = held.at("id").as<int64_t>();
    CHECK(std::is_sorted(ids.begin(), ids.end()));
  }
}

TEST_CASE("a lazy feed has states once it has counted") {
  const Uncounted data({100, 60}, Compression::none, 1);
  const std::string batch = "batch { global_batch_size: 16 }";
  Feeder lazy(data.pipeline("LAZY", batch)), counted(data.pipeline("BUILD", batch));
  const Batch first = lazy.next();
  CHECK_THROWS_WITH(lazy.get_state(), Catch::Contains("counted during the first epoch"));
  CHECK_THROWS_WITH(lazy.set_state(counted.get_state(4)), Catch::Contains("counted during the first epoch"));
  lazy.set_epoch(0);  // goes back to the beginning, still uncounted
  CHECK(said(lazy, 1) == said(counted, 1));
  lazy.set_state(counted.get_state(4));  // a place in epoch 1
  counted.set_state(counted.get_state(4));
  CHECK(said(lazy, 1) == said(counted, 1));
  CHECK(first.rows() == 16);
}

TEST_CASE("fields that need counts are refused with LAZY, by name") {
  const Uncounted data({10, 10}, Compression::none, 1);
  const std::string batch = "batch { batch_size_per_replica: 1 } ";
  const auto refusal = [&](const Pipeline& pipeline, const Options& options = {}) {
    try {
      Feeder feeder(pipeline, options);
    } catch (const Error& error) {
      CHECK(error.category() == Category::bad_pipeline);
      return error.message();
    }
    return std::string("accepted");
  };
  const std::pair<std::string, std::string> refused[] = {
      {"filter: 'id > 3'", "filter"},
      {"window { size: 2 }", "window"},
      {"interleave { cycle_length: 2 }", "interleave"},
      {"shuffle { mode: BUFFER buffer_size: 5 }", "shuffle"},
      {"shuffle {}", "shuffle"},
      {"epoch { repeat: 2 }", "epoch"},
      {"epoch { steps: 2 }", "epoch"},
      {"errors { on_error: SKIP_FILE }", "SKIP_FILE"},
      {"errors { on_error: SKIP_RECORD max_failure_rate: 0.5 }", "max_failure_rate"},
      {"output { name: 'r' feature: '@record' }", "@record"}};
  using Catch::Contains;
  for (const auto& [text, name] : refused) {
    INFO(text);
    CHECK_THAT(refusal(data.pipeline("LAZY", batch + text)),
               Contains("index.mode: LAZY does not support") && Contains(name));
  }
  CHECK_THAT(refusal(data.pipeline("LAZY", batch).with("source.range", "5:10")), Contains("'range' or num_shards"));
  CHECK_THAT(refusal(data.pipeline("LAZY", batch).with("source.num_shards", "2")), Contains("'range' or num_shards"));
  CHECK_THAT(refusal(data.pipeline("LAZY", batch), {.rank = 1, .world_size = 2}), Contains("works only with one rank"));
  // No record of a plain file is longer than the file; one of a compressed file may be.
  const auto of_a_gigabyte = [](const Uncounted& files, const std::string& text) {
    return files.pipeline("LAZY", text).with("source.record_limit", "1GiB").with("memory.limit", "1GiB");
  };
  CHECK(refusal(of_a_gigabyte(data, batch)) == "accepted");
  CHECK_THAT(refusal(of_a_gigabyte(Uncounted({10, 10}, Compression::gzip, 1), batch)),
             Contains("source.record_limit (index.mode LAZY plans for records of 1 GiB)"));
}

TEST_CASE("LAZY stores no index of a small file, unless a folder for indexes is named") {
  const auto indexes = [](const Data& data) {
    size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(data.dir().path()))
      count += entry.path().string().ends_with(".feedline-index") ? 1 : 0;
    return count;
  };
  const auto feed = [](const Pipeline& pipeline) {
    Feeder feeder(pipeline);
    const bool lazy = feeder.steps_per_epoch() == -1;
    read_epoch(feeder);
    return lazy;
  };
  const std::string batch = batch_of(10, "DROP");
  const auto lazy = [&](const Data& data) { return data.pipeline(batch).with("source.index.mode", "LAZY"); };
  const Data small({30, 40}), both({30, 12'000});
  CHECK_FALSE(feed(lazy(small)));  // so little is counted at once
  CHECK(indexes(small) == 0);
  CHECK(feed(lazy(both)));
  CHECK(indexes(both) == 1);
  CHECK_FALSE(feed(lazy(both)));  // the large file has its index, and the small one needs none
  CHECK(feed(lazy(small).with("source.index.dir", "'kept'")));
  CHECK(indexes(small) == 2);
  CHECK_FALSE(feed(lazy(small).with("source.index.dir", "'kept'")));
}
