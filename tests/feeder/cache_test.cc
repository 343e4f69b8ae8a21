// The cache of pictures: the same batches with and without it, what it finds, and what becomes of it when things fail.

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "base/byte_size.h"
#include "base/syscall_hooks.h"
#include "damage.h"
#include "data.h"
#include "distributed.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/cache_plan.h"
#include "io/records/crc32c.h"
#include "pictures/encode.h"
#include "support/catch.h"
#include "support/log_lines.h"
#include "support/process.h"

using namespace feedline;
using namespace feedline::test;

namespace {

namespace fs = std::filesystem;

constexpr int count = 60;
const std::string decode = "output { name: 'image' feature: 'image' decode_image {} ";
const std::string random_crop = decode + "crop { mode: RANDOM size: [16, 12] } flip {} } ";
const std::string any_area =
    decode + "crop { mode: RANDOM random_area {} } resize { size: [10, 14] antialias: true } } ";
const std::string crop_of_resized = decode +
                                    "resize { size: [24, 20] antialias: true } "
                                    "crop { mode: RANDOM size: [16, 12] after_resize: true } flip {} dtype: FLOAT16 "
                                    "normalize { scale: 0.0039 mean: [0.5, 0.4, 0.3] std: 0.25 } layout: CHW } ";
const std::string crop_of_shorter = decode +
                                    "resize { shorter: 16 } crop { mode: RANDOM size: [14, 15] after_resize: "
                                    "true } flip { probability: 0.3 } } ";
const std::string middle = decode +
                           "resize { shorter: 16 antialias: true } crop { size: [14, 14] after_resize: true } "
                           "normalize { scale: 0.0039 } } ";
const std::string middle_of_small = decode + "resize { size: [8, 8] } crop { size: [6, 6] after_resize: true } } ";
const std::string padded = decode + "crop { size: [40, 44] padding: 20 fill: 7 } resize { size: [12, 12] } } ";
const std::string sixteen =
    "output { name: 'image' feature: 'image' decode_image { bit_depth: 16 channels: 1 } "
    "crop { mode: RANDOM size: [8, 9] } flip {} } ";
const std::string turned =
    "output { name: 'image' feature: 'image' decode_image { apply_exif: true dct: FAST } "
    "crop { mode: RANDOM size: [10, 12] padding: 2 } } ";

/// A file of pictures of several sizes: PNGs, JPEGs, and JPEGs that are turned. Picture i has 20 + i % 9 columns and
/// 24 + i % 7 rows. Those in `broken` are cut in half.
class Pictures {
 public:
  explicit Pictures(const std::set<int>& broken = {}, uint32_t seed = 0) { write(broken, seed); }

  void write(const std::set<int>& broken = {}, uint32_t seed = 0) {
    std::vector<std::string> records;
    for (int i = 0; i < count; i++) {
      const Pixels pixels = picture_of(20 + i % 9, 24 + i % 7, 3, seed + static_cast<uint32_t>(i));
      std::string bytes = i % 3 == 0   ? to_png(pixels)
                          : i % 3 == 1 ? to_jpeg(pixels)
                                       : to_jpeg(pixels, {.exif = exif_of(1 + i % 8, false)});
      if (broken.contains(i)) bytes.resize(bytes.size() / 2);
      records.push_back(wire::example(wire::entry("id", wire::int64_feature({i})) +
                                      wire::entry("image", wire::bytes_feature({bytes}))));
    }
    write_records(dir.file("pictures.tfrecord"), records);
  }
  Pipeline pipeline(const std::string& more) const {
    return parse_pipeline(
        "source { files: 'pictures.tfrecord' } feature { name: 'id' dtype: INT64 } "
        "feature { name: 'image' dtype: BYTES } output { name: 'id' feature: 'id' } errors { on_error: SKIP_RECORD } " +
            more,
        dir.path());
  }
  Pipeline with_batch(const std::string& more) const { return pipeline(more + batch_of(6, "PAD")); }

  TempDir dir;
};

std::string cache(const std::string& where, const std::string& what, const std::string& limit) {
  return "cache { where: " + where + " what: " + what + " limit: '" + limit + "'" +
         (where == "DISK" ? " dir: 'kept' } " : " } ");
}

Texts epochs_of(Feeder& feeder, int epochs) {
  Texts all;
  for (int epoch = 0; epoch < epochs; epoch++) {
    const Texts texts = epoch_of(feeder);
    all.insert(all.end(), texts.begin(), texts.end());
  }
  return all;
}

std::vector<std::string> errors_of(const Report& report) {
  std::vector<std::string> texts;
  for (const Error& error : report.errors) texts.emplace_back(error.what());
  return texts;
}

/// Feeds three epochs with and without a cache, and compares all batches and the errors. (What was made ahead of time
/// of later epochs counts, too, so at least three epochs were looked for.)
void check_same(const Pictures& pictures, const std::string& pipeline, const std::string& with, Options options,
                size_t broken) {
  INFO(pipeline << "\n" << with);
  Feeder plain(pictures.with_batch(pipeline), options), cached(pictures.with_batch(pipeline + with), options);
  REQUIRE(epochs_of(cached, 3) == epochs_of(plain, 3));
  const Report of_plain = plain.report(), of_cached = cached.report();
  CHECK(errors_of(of_cached) == errors_of(of_plain));
  CHECK(of_cached.bad_records == broken);
  REQUIRE(of_cached.cache_share.has_value());
  CHECK(of_cached.cache_hits + of_cached.cache_misses >= 3 * count);
  CHECK_FALSE(of_plain.cache_share.has_value());
}

std::vector<fs::path> cache_files(const Pictures& pictures) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(pictures.dir.file("kept"))) files.push_back(entry.path());
  return files;
}

// Returns how many entries the feeder has kept. A row of the next epoch, which is made ahead of time, may have claimed an
// entry before the row of this epoch did. So the feed is ended first, which waits for such rows.
uint64_t entries_of(Feeder& feeder) {
  feeder.set_epoch(0);
  return feeder.report().cache_entries;
}

}  // namespace

TEST_CASE("batches with a cache are those without one", "[long]") {
  const Pictures pictures({5, 6, 7, 40});
  Options two = replicas(2);
  two.threads = 3;
  Options one;
  one.threads = 1;
  const std::pair<const char*, std::vector<std::string>> kinds[] = {
      {"DECODED", {random_crop, any_area, crop_of_resized, crop_of_shorter, sixteen, turned}},
      {"RESIZED", {crop_of_resized, crop_of_shorter, middle, padded}}};
  const std::string orders[] = {"", "shuffle { mode: BLOCK buffer_size: 20 block_size: '16KiB' } seed: 4 ",
                                "shuffle { mode: BUFFER buffer_size: 20 } seed: 4 ",
                                "shuffle { mode: GLOBAL } seed: 4 "};
  for (const auto& [what, pipelines] : kinds)
    for (const std::string& pipeline : pipelines)
      for (const char* where : {"MEMORY", "DISK"})
        for (const char* limit : {"10MiB", "70KiB"})
          for (const std::string& order : orders) {
            fs::remove_all(pictures.dir.file("kept"));
            check_same(pictures, pipeline + order, cache(where, what, limit), one, 4);
            check_same(pictures, pipeline + order, cache(where, what, limit), two, 4);  // with a DISK that is filled
          }
}

TEST_CASE("the planned part of the samples is found, in every order") {
  const Pictures pictures;
  for (const std::string order : {"", "shuffle { mode: BLOCK buffer_size: 20 block_size: '16KiB' } ",
                                  "shuffle { mode: BUFFER buffer_size: 10 } ", "shuffle { mode: GLOBAL } "})
    for (const char* limit : {"8KiB", "20KiB", "1MiB"}) {
      INFO(order << limit);
      constexpr uint64_t entry = 24 * 20 * 3 * 2, row = 24;
      const uint64_t kept = std::min<uint64_t>(count, (parse_byte_size(limit) - 64) / (entry + row));
      const Pipeline pipeline = pictures.with_batch(crop_of_resized + order + cache("MEMORY", "RESIZED", limit));
      Feeder feeder(pipeline);
      epoch_of(feeder);
      CHECK(feeder.report().cache_share == static_cast<double>(kept) / count);
      feeder.set_epoch(7);  // its counts begin at 0, and what was kept is still there
      CHECK(feeder.report().cache_entries == kept);
      CHECK(feeder.report().cache_bytes == kept * entry);
      epochs_of(feeder, 3);
      const Report found = feeder.report();
      CHECK(found.cache_hits >= 3 * kept);
      CHECK(found.cache_misses >= 3 * (count - kept));
      CHECK(found.cache_entries == kept);
    }
}

TEST_CASE("a plan keeps exactly its part of the records") {
  const Pictures pictures;
  flow::PipelineSpec spec = flow::validate(pictures.with_batch(crop_of_resized + cache("MEMORY", "RESIZED", "1GiB")));
  flow::DataSet data;
  for (const uint64_t records : {100'000, 7, 0, 250'001}) {
    flow::DataFile& file = data.files.emplace_back();
    file.index.records = records;
    file.samples = flow::Selection(records / 10, records);
    data.samples += file.samples.samples();
  }
  for (const uint64_t wanted : {1, 1000, 123'456}) {
    spec.cache->limit = 64 + wanted * (24 * 20 * 3 * 2 + 24);
    const flow::CachePlan plan(spec, data, {});
    REQUIRE(plan.kept() == wanted);
    std::set<uint64_t> entries;
    std::vector<uint64_t> of_thirds(3);
    uint64_t number = 0;
    for (uint32_t file = 0; file < data.files.size(); file++)
      for (uint64_t i = 0; i < data.files[file].samples.samples(); i++, number++)
        if (const auto entry = plan.entry_of(file, data.files[file].samples.record(i))) {
          REQUIRE(*entry < wanted);
          entries.insert(*entry);
          of_thirds[number * 3 / data.samples]++;
        }
    CHECK(entries.size() == wanted);
    if (wanted > 1000)
      for (const uint64_t third : of_thirds)
        CHECK(std::abs(static_cast<double>(third) / static_cast<double>(wanted) - 1.0 / 3) < 0.01);
  }
  spec.cache->limit = 2000;
  CHECK_THROWS_WITH(flow::CachePlan(spec, data, {}), Catch::Contains("cannot hold one sample"));
  // The size that is named is the planned one, which is larger than the mean if sizes differ.
  spec.cache->limit = 300 << 10;
  const flow::KeptSizes differ{.mean = 100 << 10, .spread = 100 << 10};
  CHECK_THROWS_WITH(flow::CachePlan(spec, data, differ),
                    Catch::Contains("300 KiB cannot hold one sample, which takes 502.9 KiB"));
}

TEST_CASE("pictures that warn are decoded in every epoch, so that they warn in every epoch") {
  TempDir dir;
  std::string bytes = to_jpeg(picture_of(60, 50, 3, 1));
  std::string damaged = bytes;
  std::vector<std::string> records;
  for (size_t at = bytes.size() / 2; at < bytes.size() - 40;
       at++) {  // an end marker in the scan, of which libjpeg warns
    damaged = bytes;
    damaged[at] = static_cast<char>(0xff);
    damaged[at + 1] = static_cast<char>(0xd9);
    records.push_back(wire::example(wire::entry("image", wire::bytes_feature({damaged}))));
  }
  write_records(dir.file("x.tfrecord"), records);
  const std::string text =
      "source { files: 'x.tfrecord' } feature { name: 'image' dtype: BYTES } "
      "errors { on_error: SKIP_RECORD } " +
      random_crop + batch_of(1, "DROP");
  Feeder plain(parse_pipeline(text, dir.path()));
  Feeder cached(parse_pipeline(text + cache("MEMORY", "DECODED", "10MiB"), dir.path()));
  REQUIRE(epochs_of(cached, 2) == epochs_of(plain, 2));
  const Report of_plain = plain.report(), of_cached = cached.report();
  CHECK(of_plain.decode_warnings > 0);
  CHECK(of_cached.decode_warnings > 0);
  CHECK(of_cached.cache_entries < records.size());
}

TEST_CASE("a later run finds what is on the disk, unless data or steps have changed") {
  Pictures pictures;
  const auto run = [&](const std::string& pipeline, int epochs = 1) {
    Feeder feeder(pictures.with_batch(pipeline));
    const Texts texts = epochs_of(feeder, epochs);
    Feeder plain(pictures.with_batch(pipeline).with("cache", ""));
    REQUIRE(texts == epochs_of(plain, epochs));
    Report report = feeder.report();
    report.cache_entries = entries_of(feeder);
    return report;
  };
  const std::string on_disk = cache("DISK", "RESIZED", "1MiB");
  CHECK(run(crop_of_resized + on_disk).cache_entries == count);
  for (int i = 0; i < 2; i++) {
    const Report again = run(crop_of_resized + "shuffle { mode: GLOBAL } seed: 5 " + on_disk);
    CHECK(again.cache_entries == 0);
    CHECK(again.cache_misses == 0);
    CHECK(again.cache_hits >= count);
  }
  const auto first = cache_files(pictures);
  REQUIRE(first.size() == 1);
  CHECK(run(middle + on_disk).cache_entries ==
        count);  // other steps: another file, and the first is not needed any more
  const auto second = cache_files(pictures);
  REQUIRE(second.size() == 1);
  CHECK(second != first);
  pictures.write({}, 9);
  CHECK(run(middle + on_disk).cache_entries == count);
  REQUIRE(cache_files(pictures).size() == 1);
  CHECK(cache_files(pictures) != second);
  CHECK(run(middle + "shuffle {} " + cache("DISK", "RESIZED", "20KiB")).cache_entries < count);  // another limit
  CHECK(cache_files(pictures).size() == 1);
}

TEST_CASE("training and validation with parts of the same files keep their files") {
  const Pictures pictures;
  const auto share_found = [&](const char* range) {
    Feeder feeder(pictures.with_batch(middle + cache("DISK", "RESIZED", "1MiB"))
                      .with("source", std::string("files: 'pictures.tfrecord' range: '") + range + "'"));
    epoch_of(feeder);
    const Report found = feeder.report();
    return static_cast<double>(found.cache_hits) / static_cast<double>(found.cache_hits + found.cache_misses);
  };
  CHECK(share_found("0%:80%") < 1);
  CHECK(share_found("80%:100%") < 1);
  for (int i = 0; i < 2; i++) {
    CHECK(share_found("0%:80%") == 1);
    CHECK(share_found("80%:100%") == 1);
  }
  CHECK(cache_files(pictures).size() == 2);
}

TEST_CASE("a feeder that only plans leaves the disk as it is, and feeds nothing") {
  const Pictures pictures;
  Options options;
  options.plan_only = true;
  Feeder planned(pictures.with_batch(middle + cache("DISK", "RESIZED", "1MiB")), options);
  CHECK_FALSE(fs::exists(pictures.dir.file("kept")));
  CHECK_THAT(planned.plan_text(), Catch::Contains("cache    RESIZED pictures of 60 of 60 samples (100.0 %)"));
  CHECK(planned.steps_per_epoch() == 10);
  CHECK(planned.try_records(100).records == count);
  planned.stop();
  const auto refusal = Catch::Contains("options.plan_only");
  CHECK_THROWS_WITH(planned.next(), refusal);
  CHECK_THROWS_WITH(planned.set_epoch(1), refusal);
  CHECK_THROWS_WITH(planned.report(), refusal);
}

TEST_CASE("a cache that is off takes no memory and says so") {
  const Pictures pictures;
  pictures.dir.write("kept", "a file where the folder would be");
  const LogLines log;
  Feeder plain(pictures.with_batch(crop_of_shorter));
  Feeder off(pictures.with_batch(crop_of_shorter + cache("DISK", "RESIZED", "1MiB")));
  CHECK(epochs_of(plain, 2) == epochs_of(off, 2));
  CHECK_THAT(off.plan_text(), Catch::Contains("cache    off: ") && Catch::Contains("the folder cannot be made"));
  const auto memory_of = [](const Feeder& feeder) {
    const std::string text = feeder.plan_text();
    return text.substr(text.find("memory   "));
  };
  CHECK(memory_of(off) == memory_of(plain));
  CHECK(off.report().cache_share == 0);
  REQUIRE(log.lines().size() == 1);
  CHECK_THAT(log.lines()[0], Catch::Contains("cache: the cache is off: "));
}

TEST_CASE("ranks of a machine share the file") {
  const Pictures pictures;
  const std::string pipeline = random_crop + "shuffle { mode: BLOCK buffer_size: 20 block_size: '16KiB' } ";
  std::vector<Texts> plain, cached;
  for (const std::string& with : {std::string(), cache("DISK", "DECODED", "4MiB")}) {
    std::vector<std::unique_ptr<Feeder>> feeders;
    for (int rank = 0; rank < 2; rank++) {
      Options options;
      options.rank = rank;
      options.world_size = 2;
      feeders.push_back(std::make_unique<Feeder>(pictures.with_batch(pipeline + with), options));
    }
    for (int epoch = 0; epoch < 4; epoch++)
      for (auto& feeder : feeders) (with.empty() ? plain : cached).push_back(epoch_of(*feeder));
    if (with.empty()) continue;
    uint64_t entries = 0;
    for (auto& feeder : feeders) entries += feeder->report().cache_entries;
    CHECK(entries <= count);
    CHECK(cache_files(pictures).size() == 1);
  }
  CHECK(plain == cached);
  Feeder alone(pictures.with_batch(pipeline + cache("DISK", "DECODED", "4MiB")));
  epoch_of(alone);
  CHECK(alone.report().cache_hits > 0);
}

TEST_CASE("outputs share what is the same, windows and sources are numbered right, and states go on") {
  const Pictures pictures({3});
  const std::string two =
      decode + "resize { size: [9, 9] } } " +
      "output { name: 'other' feature: 'image' decode_image {} crop { mode: RANDOM size: [8, 8] } } "
      "output { name: 'grey' feature: 'image' decode_image { channels: 1 } crop { size: [5, 5] } } ";
  for (const std::string& pipeline :
       {two, two + "window { size: 3 shift: 1 stride: 2 } ",
        two + "source { files: 'pictures.tfrecord' range: '20%:70%' } epoch { repeat: 2 } ",
        two + "filter: 'mod(id, 3) == 1' "}) {
    INFO(pipeline);
    for (const char* limit : {"10MiB", "60KiB"}) {
      const auto with = [&](const std::string& more) { return pictures.with_batch(pipeline + more); };
      Feeder plain(with("")), cached(with(cache("MEMORY", "DECODED", limit)));
      REQUIRE(epochs_of(plain, 2) == epochs_of(cached, 2));
      plain.set_state(plain.get_state(0, 2));
      cached.set_state(plain.get_state(0, 2));
      REQUIRE(epochs_of(plain, 2) == epochs_of(cached, 2));
    }
  }
  // The first two outputs decode alike, so they share their entries.
  const auto kept_with = [&](const std::string& outputs) {
    Feeder feeder(pictures.with_batch(outputs + cache("MEMORY", "DECODED", "10MiB")));
    epoch_of(feeder);
    return entries_of(feeder);
  };
  CHECK(kept_with(two) == 2 * (count - 1));
}

TEST_CASE("a wrong byte in the file is never fed") {
  const Pictures pictures;
  const std::string pipeline = middle + cache("DISK", "RESIZED", "1MiB");
  Feeder plain(pictures.with_batch(middle));
  const Texts right = epoch_of(plain);
  { Feeder(pictures.with_batch(pipeline)).next(); }
  for (int i = 0; i < 20; i++) {
    const fs::path file = cache_files(pictures).at(0);
    flip(file, static_cast<uint64_t>(i) * fs::file_size(file) / 20 + 17);
    Feeder feeder(pictures.with_batch(pipeline));
    REQUIRE(epoch_of(feeder) == right);
  }
}

TEST_CASE("a disk that fails or is full costs the cache, not the feed") {
  const Pictures pictures;
  const std::string pipeline = middle + cache("DISK", "RESIZED", "1MiB");
  Feeder plain(pictures.with_batch(middle));
  const Texts right = epochs_of(plain, 2);
  for (const char* name : {"open a cache", "write to a cache", "write short to a cache", "read from a cache",
                           "fdatasync of a cache", "lock of a cache"})
    for (int64_t n = 1; n <= 80; n += n < 5 ? 1 : 25) {
      INFO(name << " " << n);
      const LogLines log;
      if (n % 2 == 1) fs::remove_all(pictures.dir.file("kept"));
      SyscallHook& hook = *find_hook(name);
      hook.fail_nth_call(n);
      {
        Feeder feeder(pictures.with_batch(pipeline));
        REQUIRE(epochs_of(feeder, 2) == right);
      }
      hook.fail_nth_call(0);
      CHECK(log.lines().size() <= 1);
    }
}

TEST_CASE("a file that claims more entries than the data can have turns the cache off, and stops no feed") {
  const Pictures pictures;
  Feeder plain(pictures.with_batch(middle));
  const Texts right = epochs_of(plain, 1);
  for (const char* what : {"RESIZED", "RECORDS"}) {
    INFO(what);
    fs::remove_all(pictures.dir.file("kept"));
    const Pipeline cached = pictures.with_batch(middle + cache("DISK", what, "4MiB"));
    epoch_of(*std::make_unique<Feeder>(cached));
    REQUIRE(cache_files(pictures).size() == 1);
    const fs::path file = cache_files(pictures).front();
    // The header: 8 bytes of magic, a digest, the number of entries, that of bytes, and the checksum of all these.
    std::array<std::byte, 32> header;
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.read(reinterpret_cast<char*>(header.data()), header.size());
    const uint64_t entries = uint64_t{1} << 36;
    std::memcpy(header.data() + 16, &entries, sizeof entries);
    const uint32_t sum = io::crc32c(header);
    bytes.seekp(0);
    bytes.write(reinterpret_cast<const char*>(header.data()), header.size());
    bytes.write(reinterpret_cast<const char*>(&sum), sizeof sum);
    bytes.close();
    fs::resize_file(file, (entries + 1024) * 32);  // a hole
    const LogLines log;
    Feeder feeder(cached);
    CHECK(epochs_of(feeder, 1) == right);
    CHECK(feeder.report().cache_share == 0);
    REQUIRE(log.lines().size() == 1);
    CHECK_THAT(log.lines()[0], Catch::Contains("is damaged: it says that it has 68719476736 entries"));
    fs::resize_file(file, 0);
  }
}

TEST_CASE("a file that is cut short while feeds use it costs what it held, and no feed") {
  const Pictures pictures;
  for (const char* what : {"RESIZED", "DECODED", "RECORDS"}) {
    INFO(what);
    fs::remove_all(pictures.dir.file("kept"));
    const Pipeline plain = pictures.with_batch(middle),
                   cached = pictures.with_batch(middle + cache("DISK", what, "4MiB"));
    Feeder wanted(plain), first(cached), second(cached);
    const Texts right = epochs_of(wanted, 4);
    const Texts begun = epochs_of(first, 2);
    CHECK(epoch_of(second) == epoch_of(*std::make_unique<Feeder>(plain)));
    for (const fs::path& file : cache_files(pictures)) fs::resize_file(file, 0);
    Texts all = begun;
    const Texts rest = epochs_of(first, 2);
    all.insert(all.end(), rest.begin(), rest.end());
    CHECK(all == right);
    epochs_of(second, 1);
    Feeder again(cached);
    CHECK(epochs_of(again, 4) == right);
  }
}

TEST_CASE("what decides the bytes of a picture decides in which file it is kept") {
  const TempDir dir;
  const std::string black = to_png(picture_of(9, 9, 3, 1)), white = to_png(picture_of(9, 9, 3, 2));
  dir.write("black", black);
  std::vector<std::string> records;
  for (int64_t i = 0; i < 12; i++)
    records.push_back(wire::example(wire::entry("id", wire::int64_feature({i})) +
                                    (i % 3 == 0 ? "" : wire::entry("image", wire::bytes_feature({black})))));
  write_records(dir.file("a"), records);
  const auto pipeline = [&](const std::string& image, const std::string& kept) {
    std::string escaped;
    for (const char byte : image) {
      char text[8];
      std::snprintf(text, sizeof text, "\\%03o", static_cast<unsigned char>(byte));
      escaped += text;
    }
    return parse_pipeline("source { files: 'a' } feature { name: 'image' dtype: BYTES default_value { bytes_value: '" +
                              escaped + "' } } " + middle_of_small + kept + batch_of(4, "DROP"),
                          dir.path());
  };
  for (const char* what : {"DECODED", "RESIZED"})
    for (const std::string& image : {black, white, black}) {
      Feeder wanted(pipeline(image, "")), kept(pipeline(image, cache("DISK", what, "1MiB")));
      CHECK(epochs_of(kept, 2) == epochs_of(wanted, 2));
    }
}

TEST_CASE("pictures that `shorter` makes larger than max_pixels are kept on a disk, too") {
  const Pictures pictures;
  const std::string pipeline =
      "output { name: 'image' feature: 'image' decode_image { max_pixels: 900 } resize { shorter: 60 } "
      "crop { mode: RANDOM size: [50, 50] after_resize: true } } ";
  for (const char* where : {"MEMORY", "DISK"}) {
    Feeder feeder(pictures.with_batch(pipeline + cache(where, "RESIZED", "10MiB")));
    epochs_of(feeder, 3);
    CHECK(feeder.report().cache_hits >= count);  // rows of the next epoch are made ahead of time
    CHECK(entries_of(feeder) == count);
  }
}

TEST_CASE("a plan says what is kept, and counts its memory") {
  const Pictures pictures;
  Feeder feeder(pictures.with_batch(crop_of_resized +
                                    "output { name: 'other' feature: 'image' decode_image {} crop { "
                                    "mode: RANDOM size: [8, 8] } } " +
                                    cache("MEMORY", "RESIZED", "44KiB")));
  const std::string text = feeder.plan_text();
  CHECK_THAT(text, Catch::Contains("cache    RESIZED pictures of 15 of 60 samples (25.0 %), about 2.8 KiB each, in "
                                   "memory\n"));
  CHECK_THAT(text, Catch::Contains("output 'other' is not kept: it is not resized"));
  CHECK_THAT(text, Catch::Contains("memory   cache"));
  CHECK_THAT(to_json(feeder.report()), Catch::Contains("\"share\": 0.25"));
}

TEST_CASE("caches that could keep nothing, or are wrong, are refused with the reason") {
  const Pictures pictures;
  const auto why = [&](const std::string& more) -> std::string {
    try {
      Feeder feeder(pictures.with_batch(more));
      return "nothing";
    } catch (const Error& error) {
      CHECK(error.category() == Category::bad_pipeline);
      return error.message();
    }
  };
  CHECK_THAT(why(any_area + cache("MEMORY", "RESIZED", "1MiB")),
             Catch::Contains("output 'image': its random crop comes before resize"));
  CHECK_THAT(why(random_crop + cache("MEMORY", "RESIZED", "1MiB")), Catch::Contains("it is not resized"));
  CHECK_THAT(why(cache("MEMORY", "RESIZED", "1MiB")), Catch::Contains("no output is a picture"));
  CHECK_THAT(why(middle + "cache { what: RESIZED } "), Catch::Contains("cache: limit: it is missing"));
  CHECK_THAT(why(middle + "cache { what: RESIZED limit: '5 apples' } "), Catch::Contains("cache: limit: "));
  CHECK_THAT(why(middle + "cache { what: DECODED limit: '1MiB' dir: 'x' } "),
             Catch::Contains("it has no effect without where: DISK"));
  CHECK_THAT(why(middle + cache("MEMORY", "RESIZED", "100B")), Catch::Contains("cannot hold one sample"));
  CHECK_THAT(why("output { name: 'image' feature: 'image' decode_image { scale: AUTO } resize { size: [4, 4] } } " +
                 cache("MEMORY", "DECODED", "1MiB")),
             Catch::Contains("scale AUTO the decoded size depends on the crop"));
}
