// Forged indexes beside the data that is fed. Whatever an index says, a feed must give records of the file or an error.
// Run under ASan and UBSan (./dev sanitize) the test also shows that the feed touches no memory but its own.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "data.h"
#include "io/deflate.h"
#include "io/frames.h"
#include "io/index/index_store.h"
#include "support/catch.h"
#include "support/own_cache.h"

using namespace feedline;
using namespace feedline::test;

namespace {

constexpr uint64_t stride = 1024, record_limit = 8192;
constexpr size_t header_bytes = 168, point_bytes = 40;

// Returns the bytes of a record. Most are short, some are longer than a stride, and some are empty.
std::string bytes_of_record(int64_t id) {
  const int64_t size = id % 17 == 16 ? 3000 + id : id % 5 == 4 ? 0 : id * 37 % 200;
  return std::string(static_cast<size_t>(size), static_cast<char>(id));
}
std::vector<int64_t> values_of_record(int64_t id) {
  std::vector<int64_t> values(static_cast<size_t>(id % 9 == 8 ? 150 : id % 4));
  for (size_t i = 0; i < values.size(); i++) values[i] = id * 10 + static_cast<int64_t>(i) % 100;
  return values;
}
std::string record(int64_t id) {
  return wire::example(wire::entry("id", wire::int64_feature({id})) +
                       wire::entry("z", wire::bytes_feature({bytes_of_record(id)})) +
                       wire::entry("v", wire::int64_feature(values_of_record(id))));
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

uint64_t word(const std::string& bytes, size_t at) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, 8);
  return value;
}
std::string with(std::string bytes, size_t at, uint64_t value) { return bytes.replace(at, 8, little_endian(value)); }

// Two files; the index of the first one is forged. There are three kinds of them: "plain", "gz", and "points", a
// compressed file that is large enough for seek points.
struct Files {
  explicit Files(const std::string& kind) : name(kind) {
    const std::string first = dir.file("a");
    if (name == "points") {
      std::string file;
      for (int64_t i = 0; i < 9000; i++) file += frame(record(i % last()));
      dir.write("a", deflated(file, 31, 1));
    } else if (name == "gz") {
      std::vector<std::string> records;
      for (int64_t id = 0; id < last(); id++) records.push_back(record(id));
      write_records(first, records, Compression::gzip);
      std::filesystem::resize_file(first, std::filesystem::file_size(first) - 100);  // cuts the end off
    } else {
      std::string file;
      for (int64_t id = 0; id < 80; id++) {
        std::string framed = frame(record(id));
        if (id == 21 || id == 22 || id == 50) framed[framed.size() / 2] ^= 1;
        if (id == 35) framed.replace(0, framed.size(), framed.size(), '\0');
        file += framed;
      }
      dir.write("a", file.substr(0, file.size() - 10));
    }
    write_records(dir.file("b"), {record(1000), record(1001), record(1002)},
                  name == "plain" ? Compression::none : Compression::gzip);
    data = io::stat_file(first);
    io::let_mtime_settle(data);
    const io::FileIndex index = io::count_records(first, options);
    REQUIRE(index.bad.size() == (name == "gz" ? 1 : name == "plain" ? 5 : 0));
    REQUIRE(index.seek_points.size() >= (name == "points" ? 2 : 0));
    io::keep_index(index, data, data, options, "");
    sound = read_all(path());
    modes = make_modes();
  }

  std::string path() const { return dir.file(".a.feedline-index"); }

  // An order, and what happens to bad records.
  struct Mode {
    std::string text;
    bool windows;
    Pipeline pipeline;
  };
  std::vector<Mode> make_modes() const {
    const std::string block = "shuffle { mode: BLOCK block_size: '2KiB' buffer_size: 20 } ";
    const std::string global = "shuffle { mode: GLOBAL } ";
    std::vector<std::pair<bool, std::string>> orders = {{false, ""}, {true, ""}};
    for (const bool windows : {false, true})
      for (const std::string& order : {block, global, std::string("shuffle { mode: BUFFER buffer_size: 10 } ")})
        if (name == "plain" || order != global) orders.push_back({windows, order});
    std::vector<Mode> all;
    for (const auto& [windows, order] : orders)
      for (const char* on_error : {"SKIP_RECORD", "RAISE"}) {
        const std::string what = windows ? "window { size: 5 shift: 3 } "
                                         : "feature { name: 'z' dtype: BYTES kind: VARIABLE } "
                                           "feature { name: 'v' dtype: INT64 kind: VARIABLE } ";
        const std::string text = what + order + "errors { on_error: " + on_error + " } ";
        all.push_back({text, windows,
                       parse_pipeline("source { files: 'a' files: 'b' record_limit: '8KiB' index { stride: '1KiB' } } "
                                      "feature { name: 'id' dtype: INT64 } " +
                                          std::string(name == "points"
                                                          ? "memory { limit: '2GiB' } batch { global_batch_size: 60"
                                                          : "memory { limit: '64MiB' } batch { global_batch_size: 6") +
                                          " last_batch_policy: PARTIAL } " + text,
                                      dir.path())});
      }
    return all;
  }

  // Feeds an epoch. Every delivered row must be a record as it was written.
  void feed(const Mode& mode) {
    INFO(mode.text);
    feeds++;
    Options two_threads;
    two_threads.threads = 2;
    try {
      Feeder feeder(mode.pipeline, two_threads);
      bool right = true;
      int batches = 0;
      for (; const Batch batch = feeder.next(); batches++) {
        const auto ids = batch.at("id").as<int64_t>();
        const auto valid = batch.at("@valid").as<const bool>();
        for (size_t row = 0; row < ids.size(); row++)
          if (valid[row]) right = right && is_good(ids[row]) && (mode.windows || is_whole(batch, row, ids[row]));
      }
      CHECK(right);
      CHECK(batches < 200);
    } catch (const Error& error) {
      errors[std::string(feedline::name(error.category()))]++;
    }
  }
  int64_t last() const { return name == "points" ? 4500 : 70; }
  bool is_good(int64_t id) const {
    if (name != "plain") return (id >= 0 && id < last()) || (id >= 1000 && id < 1003);
    return (id >= 0 && id < 79 && id != 21 && id != 22 && id != 35 && id != 50) || (id >= 1000 && id < 1003);
  }
  static bool is_whole(const Batch& batch, size_t row, int64_t id) {
    const auto values = batch.at("v.values").as<int64_t>();
    const auto of_values = batch.at("v.row_splits").as<int64_t>();
    const auto bytes = batch.at("z.bytes").as<uint8_t>();
    const auto splits = batch.at("z.row_splits").as<int64_t>(), offsets = batch.at("z.offsets").as<int64_t>();
    const std::vector<int64_t> wanted = values_of_record(id);
    const std::string wanted_bytes = bytes_of_record(id);
    return std::equal(values.begin() + of_values[row], values.begin() + of_values[row + 1], wanted.begin(),
                      wanted.end()) &&
           splits[row + 1] == splits[row] + 1 &&
           std::equal(bytes.begin() + offsets[splits[row]], bytes.begin() + offsets[splits[row] + 1],
                      wanted_bytes.begin(), wanted_bytes.end(),
                      [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); });
  }

  // Corrects the checksums of a forged index and feeds the data with it, if it is accepted as an index.
  void try_index(std::string bytes) {
    if (word(bytes, 120) == entries() && word(bytes, 128) == sums()) {
      uint64_t audit = 0;
      for (size_t g = 0; g < sums(); g++) audit += word(bytes, header_bytes + 16 * entries() + 8 * g);
      bytes = with(bytes, 112, audit);
    }
    for (const bool totals : {false, true}) {
      if (totals && word(bytes, 136) != regions()) continue;
      if (totals) {
        uint64_t bad_bytes = 0;
        for (size_t r = 0; r < regions(); r++) bad_bytes += word(bytes, region(r) + 8);
        const uint64_t payload = word(bytes, 104) - bad_bytes - 16 * word(bytes, 64);
        if (payload == word(bytes, 72)) continue;
        bytes = with(bytes, 72, payload);
      }
      const uint32_t crc = io::crc32c(bytes_of(bytes).subspan(16));
      std::memcpy(bytes.data() + 12, &crc, 4);
      mutants++;
      if (bytes == sound || !io::parse_index(bytes_of(bytes), data, options).index) continue;
      if (!fed.insert(bytes).second) continue;
      dir.write(".a.feedline-index", bytes);
      // Feeds each index in some of the modes, and in all modes if it changes the plan of memory.
      const bool all = word(bytes, 80) != word(sound, 80) || word(bytes, 88) != word(sound, 88);
      for (size_t m = 0; m < modes.size(); m++)
        if (all || (m + fed.size()) % 8 == 0) feed(modes[m]);
    }
  }

  size_t entries() const { return word(sound, 120); }
  size_t sums() const { return word(sound, 128); }
  size_t regions() const { return word(sound, 136); }
  size_t entry(size_t k) const { return header_bytes + 16 * k; }
  size_t points() const { return word(sound, 152); }
  size_t point(size_t p) const { return header_bytes + 16 * entries() + 8 * sums() + point_bytes * p; }
  size_t region(size_t r) const { return point(points()) + 32 * r; }

  const std::string name;
  TempDir dir;
  OwnCache cache{dir.file("cache")};
  const io::CountOptions options{.record_limit = record_limit, .stride = stride};
  io::FileId data;
  std::string sound;
  std::vector<Mode> modes;
  std::set<std::string> fed;
  size_t mutants = 0, feeds = 0;
  std::map<std::string, size_t> errors;
};

}  // namespace

TEST_CASE("a forged index gives records of the file, or an error") {
  Files files(GENERATE("plain", "gz"));
  INFO(files.name);
  std::mt19937_64 random(11);
  const size_t words = files.sound.size() / 8;
  for (const Files::Mode& mode : files.modes) files.feed(mode);
  CHECK(files.errors.size() == 1);  // only the errors that RAISE raises

  // Changes each word by itself.
  for (size_t at = 16; at < 8 * words; at += 8) {
    const uint64_t old = word(files.sound, at);
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, old + 1, old - 1, old + 16, old - 16, old + stride, old - stride, old * 2, old / 2,
          UINT64_MAX, UINT64_MAX / 2, word(files.sound, at - 16), word(files.sound, (at + 16) % (8 * words)),
          word(files.sound, random() % words * 8), word(files.sound, random() % words * 8)})
      files.try_index(with(files.sound, at, value));
  }
  // Changes the sizes of records, from which the plan of memory is made.
  for (const uint64_t smallest : {0, 1, 40})
    for (uint64_t largest = 1; largest <= record_limit; largest += largest / 3 + 1)
      files.try_index(with(with(files.sound, 80, smallest), 88, largest));
  // Changes whole entries.
  for (size_t k = 0; k < files.entries(); k++) {
    const auto move = [&](size_t to, size_t from) {
      return with(with(files.sound, files.entry(to), word(files.sound, files.entry(from))), files.entry(to) + 8,
                  word(files.sound, files.entry(from) + 8));
    };
    const size_t other = random() % files.entries(), next = (k + 1) % files.entries();
    files.try_index(move(k, next));
    files.try_index(move(next, k));
    files.try_index(move(k, other));
    std::string all_end = files.sound;  // every entry from here on is the end of the file
    for (size_t i = k; i < files.entries(); i++)
      all_end = with(with(all_end, files.entry(i), word(files.sound, 96)), files.entry(i) + 8, word(files.sound, 64));
    files.try_index(all_end);
    files.try_index(with(with(all_end, 80, 1), 88, 5000));
    std::string shifted = files.sound;  // the entries from here on name other records
    for (size_t i = k; i < files.entries(); i++)
      shifted = with(shifted, files.entry(i) + 8, word(files.sound, files.entry(i) + 8) + 1);
    files.try_index(with(shifted, 64, word(files.sound, 64) + 1));
    files.try_index(with(with(shifted, 64, word(files.sound, 64) + 1), 80, 0));
  }
  for (size_t r = 0; r < files.regions(); r++)
    for (const uint64_t by : {uint64_t{1}, uint64_t{16}, uint64_t{100}, stride})
      for (const bool back : {false, true}) {
        const uint64_t offset = word(files.sound, files.region(r)), length = word(files.sound, files.region(r) + 8);
        const std::string moved = with(files.sound, files.region(r), back ? offset - by : offset + by);
        files.try_index(moved);
        files.try_index(with(moved, files.region(r) + 8, back ? length + by : length - by));
        files.try_index(with(files.sound, files.region(r) + 8, back ? length - by : length + by));
      }
  std::printf("%s: %zu made-up indexes, %zu of them were believed, %zu feeds;", files.name.c_str(), files.mutants,
              files.fed.size(), files.feeds);
  for (const auto& [error, count] : files.errors) std::printf(" %s %zu", error.c_str(), count);
  std::printf("\n");
  CHECK(files.fed.size() > (files.name == "gz" ? 10 : 50));
}

TEST_CASE("forged seek points give records of the file, or an error") {
  Files files("points");
  for (const Files::Mode& mode : files.modes) files.feed(mode);
  CHECK(files.errors.empty());
  for (size_t p = 0; p < files.points(); p++)
    for (size_t field = 0; field < point_bytes; field += 8) {
      const size_t at = files.point(p) + field;
      const uint64_t old = word(files.sound, at);
      for (const uint64_t value : {old + 1, old - 8, old / 2}) files.try_index(with(files.sound, at, value));
    }
  // Windows with wrong bytes, and none at all.
  const size_t windows = files.region(files.regions());
  for (size_t at = windows; at + 8 <= files.sound.size(); at += files.sound.size() / 20)
    files.try_index(with(files.sound, at, ~word(files.sound, at)));
  std::string none = files.sound.substr(0, windows);
  for (size_t p = 0; p < files.points(); p++) none = with(none, files.point(p) + 32, 0);
  files.try_index(with(none, 160, 0));
  std::string no_points = files.sound.substr(0, files.point(0));
  files.try_index(with(with(no_points, 152, 0), 160, 0));
  std::printf("points: %zu made-up indexes, %zu of them were believed, %zu feeds;", files.mutants, files.fed.size(),
              files.feeds);
  for (const auto& [error, count] : files.errors) std::printf(" %s %zu", error.c_str(), count);
  std::printf("\n");
  CHECK(files.fed.size() > 10);
  CHECK(!files.errors.empty());
}
