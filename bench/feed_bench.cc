// How close the host path comes to what one core could do: feed_bench [--rounds N] [--json FILE] [--data DIR]
//
// Every figure is a rate in records/s on one CPU with a warm page cache. In each round every ceiling and every path is
// measured once, in turn; a ratio is taken within a round, and what is printed is the median over the rounds with the
// smallest and largest. bench/README.md defines each metric.
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ceilings.h"
#include "feedline/feeder.h"
#include "feedline/records.h"
#include "flowgraph/example_parser.h"
#include "io/record_scanner.h"
#include "measure.h"

namespace feedline::bench {
namespace {

constexpr size_t block_bytes = 512 << 10;  // of a read: flowgraph/plan.cc
constexpr double measured_s = 0.15;

// Repeats `work`, which returns how many records it went through, and gives records/s.
double rate(const std::function<uint64_t()>& work) {
  uint64_t records = 0;
  double took_s = 0;
  do took_s += seconds([&] { records += work(); });
  while (took_s < measured_s);
  return static_cast<double>(records) / took_s;
}

double compose(std::initializer_list<double> rates) {
  double time = 0;
  for (double r : rates) time += 1 / r;
  return 1 / time;
}

bool exists(const std::string& file) {
  struct stat info {};
  return stat(file.c_str(), &info) == 0;
}

// Real chess positions, again and again; or pictures of noise.
void make_chess(const std::string& file, uint64_t records) {
  if (exists(file)) return;
  std::vector<std::string> payloads;
  for (int shard = 0; shard < 3; shard++) {
    RecordReader reader(fmt::format("{}/chess/main-0000{}-of-00003.tfrecord", FEEDLINE_GOLDEN, shard));
    Record record;
    while (reader.next(record) == ReadResult::record)
      payloads.emplace_back(reinterpret_cast<const char*>(record.payload.data()), record.payload.size());
  }
  RecordWriter writer(file);
  for (uint64_t i = 0; i < records; i++) writer.write(std::as_bytes(std::span(payloads[i % payloads.size()])));
  writer.close();
}

void make_images(const std::string& file, uint64_t records, size_t bytes) {
  if (exists(file)) return;
  const auto varint = [](uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    return out + static_cast<char>(value);
  };
  const auto field = [&](int number, const std::string& content) {
    return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(content.size()) + content;
  };
  std::string pixels(bytes, '\0');
  uint64_t state = 1;
  for (char& c : pixels) c = static_cast<char>((state = state * 6364136223846793005u + 1) >> 56);
  RecordWriter writer(file);
  for (uint64_t i = 0; i < records; i++) {
    pixels[i % bytes] = static_cast<char>(i);
    const std::string entry = field(1, "image") + field(2, field(1, field(1, pixels)));
    const std::string label = field(1, "label") + field(2, field(3, field(1, varint(i % 10))));
    const std::string record = field(1, field(1, entry) + field(1, label));
    writer.write(std::as_bytes(std::span(record)));
  }
  writer.close();
}

// Records/s of one epoch in the steady state: from the end of one epoch to the end of the next.
class Fed {
 public:
  Fed(const std::string& text, const std::string& folder) : feeder_(parse_pipeline(text, folder), one_thread()) {
    pass();
  }
  uint64_t pass() {
    uint64_t records = 0;
    while (auto batch = feeder_.next()) records += static_cast<uint64_t>(batch.valid_count());
    return records;
  }

 private:
  static Options one_thread() {
    Options options;
    options.threads = 1;
    return options;
  }
  Feeder feeder_;
};

uint64_t verify(const std::string& file) {
  RecordReader reader(file);
  Record record;
  uint64_t records = 0;
  while (reader.next(record) == ReadResult::record) records++;
  return records;
}

struct Row {
  std::string name;
  std::string unit;
  double to = 0;  // what the ratio must reach; 0: a ceiling
  std::vector<double> rates, ratios;
};

class Table {
 public:
  void add(const std::string& name, double rate, double ceiling, double to) {
    auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.name == name; });
    if (row == rows_.end()) row = rows_.insert(row, {name, {}, to, {}, {}});
    row->rates.push_back(rate);
    row->ratios.push_back(rate / ceiling);
  }
  int print(const std::string& json_file) const {
    nlohmann::json json = nlohmann::json::array();
    int missed = 0;
    fmt::print("{:<52} {:>12} {:>9}  {:>17}  {:>6}\n", "one core, page cache warm", "records/s", "ns",
               "ratio (min..max)", "wanted");
    for (const Row& row : rows_) {
      const auto [low, high] = std::minmax_element(row.ratios.begin(), row.ratios.end());
      const double ratio = median(row.ratios), rate = median(row.rates);
      const bool ok = ratio >= row.to;
      missed += !ok;
      fmt::print("{:<52} {:>12.4g} {:>9.1f}  {:5.2f} ({:.2f}..{:.2f})  {:>6.2f}{}\n", row.name, rate, 1e9 / rate, ratio,
                 *low, *high, row.to, ok ? "" : "  MISSED");
      json.push_back({{"name", row.name},
                      {"records_per_s", rate},
                      {"ratio", ratio},
                      {"ratio_min", *low},
                      {"ratio_max", *high},
                      {"wanted", row.to}});
    }
    if (!json_file.empty()) std::ofstream(json_file) << json.dump(1) << '\n';
    return missed;
  }

 private:
  std::vector<Row> rows_;
};

constexpr const char* chess_features =
    "source { files: 'chess.tfrecord' } feature { name: 'd' dtype: BYTES length: 194 } feature { name: 's' dtype: "
    "INT64 } ";
constexpr const char* board =
    "output { name: 'board' dtype: FLOAT32 feature: 'd' unpack_bits { shape: [8, 8, 24] "
    "channel_order: [0,4,8,12,16,20,1,5,9,13,17,21,2,6,10,14,18,22,3,7,11,15,19,23] "
    "scale: [1,1,1,1,1,1,-1,-1,-1,-1,-1,-1,1,1,1,1,1,1,-1,-1,-1,-1,-1,-1] } } ";

void chess_round(const std::string& folder, Table& table, double copy_bytes_s,
                 std::map<std::string, std::unique_ptr<Fed>>& fed) {
  const std::string file = folder + "/chess.tfrecord";
  struct stat info {};
  stat(file.c_str(), &info);
  const Frames hot = load(file.c_str(), block_bytes);
  const double record_bytes =
      static_cast<double>(hot.frames.back().offset) / static_cast<double>(hot.frames.size() - 1);
  std::vector<const std::byte*> d;
  std::vector<int64_t> s;
  walk(hot, d, s);
  std::vector<std::byte> ring(3 * 1024 * 6144 + 64);
  auto* aligned = ring.data() + (-reinterpret_cast<uintptr_t>(ring.data()) & 63);

  // Ceilings; `to` is half of what they reach elsewhere in ratio to memory copy: a weaker one would flatter us.
  const double copy = copy_bytes_s / record_bytes;
  const double r = rate([&] {
    return read(file.c_str(), block_bytes), static_cast<uint64_t>(static_cast<double>(info.st_size) / record_bytes);
  });
  const double c = rate([&] { return crc(hot); });
  const double w = rate([&] { return walk(hot, d, s); });
  const double g = rate([&] { return gather(d, s, 1024, aligned), d.size(); });
  const double u = rate([&] { return unpack(d, 512, aligned), d.size(); });
  table.add("ceiling: page-cache read", r, copy, 0.58);
  table.add("ceiling: CRC32C", c, copy, 0.53);
  table.add("ceiling: wire walk into columns", w, copy, 0.48);
  table.add("ceiling: row gather into a ring of 3 batches", g, copy, 1.65);
  table.add("ceiling: unpack into a ring of 3 batches", u, copy_bytes_s / 6144, 2.5);

  table.add("verify / (read, CRC)", rate([&] { return verify(file); }), compose({r, c}), 0.80);

  flow::FeatureSpec feature_d, feature_s;
  feature_d.name = feature_d.key = "d";
  feature_d.dtype = DType::bytes;
  feature_d.length = 194;
  feature_s.name = feature_s.key = "s";
  feature_s.dtype = DType::int64;
  const flow::ExampleParser parser({feature_d, feature_s});
  std::vector<io::RecordView> records;
  uint64_t payload = 0;
  for (const Frames::Frame& frame : hot.frames) {
    records.push_back({&hot.file[frame.offset], frame.size, 0});
    payload += frame.size;
  }
  std::vector<std::byte> memory(parser.arena_bound(records.size(), payload));
  std::vector<flow::RowError> errors;
  table.add("parse into columns / walk", rate([&] {
              flow::Arena arena(memory);
              flow::ExampleParser::Session session(parser, static_cast<uint32_t>(records.size()), arena);
              session.parse(records, errors);
              return records.size();
            }),
            w, 0.60);

  auto& as_they_are = fed["chess"];
  if (!as_they_are)
    as_they_are = std::make_unique<Fed>(std::string(chess_features) + "batch { global_batch_size: 1024 }", folder);
  table.add("features as they are / (read, CRC, walk, gather)", rate([&] { return as_they_are->pass(); }),
            compose({r, c, w, g}), 0.50);
  auto& boards = fed["board"];
  if (!boards)
    boards = std::make_unique<Fed>(std::string(chess_features) + board + "batch { global_batch_size: 512 }", folder);
  const double board_rate = rate([&] { return boards->pass(); });
  table.add("float32 board / (read, CRC, walk, unpack)", board_rate, compose({r, c, w, u}), 0.65);

  // In random order, within half of the last-level cache (bench/README.md).
  const auto again = [&](const std::string& name, const std::string& text) {
    auto& feed = fed[name];
    if (!feed) feed = std::make_unique<Fed>(std::string(chess_features) + text, folder);
    return rate([&] { return feed->pass(); });
  };
  const std::string block = "shuffle { mode: BLOCK buffer_size: 8000 lanes: 8 } ";
  const double packed_rate = rate([&] { return as_they_are->pass(); });
  table.add("features, BLOCK / NONE", again("chess block", block + "batch { global_batch_size: 1024 }"), packed_rate,
            0.85);
  table.add("float32 board, BLOCK / NONE", again("board block", block + board + "batch { global_batch_size: 512 }"),
            board_rate, 0.85);
  static const std::vector<Place> places = random_places(file.c_str(), 16 << 10, 1 << 15);
  const double random = rate([&] { return read_at_random(file.c_str(), places), places.size(); });
  table.add("ceiling: random reads of 16 KiB, CRC up to a record", random, copy, 0);
  table.add("features, GLOBAL / random reads",
            again("chess global", "shuffle { mode: GLOBAL } epoch { steps: 32 } batch { global_batch_size: 1024 }"),
            random, 0.70);
}

void image_round(const std::string& folder, Table& table, std::map<std::string, std::unique_ptr<Fed>>& fed) {
  const std::string file = folder + "/images.tfrecord";
  constexpr size_t pixels = 256 * 256 * 3;
  struct stat info {};
  stat(file.c_str(), &info);
  const Frames hot = load(file.c_str(), 3 * (pixels + 100));
  const auto count = static_cast<uint64_t>(info.st_size) / (pixels + 50);
  std::vector<std::byte> ring(3 * 64 * pixels);
  const double r = rate([&] { return read(file.c_str(), block_bytes), count; });
  const double c = rate([&] { return crc(hot); });
  size_t row = 0;
  const double copy = rate([&] {
    for (const Frames::Frame& frame : hot.frames)
      std::memcpy(&ring[row++ % 192 * pixels], &hot.file[frame.offset], pixels);
    return hot.frames.size();
  });
  auto& images = fed["images"];
  if (!images)
    images = std::make_unique<Fed>(
        "source { files: 'images.tfrecord' } feature { name: 'image' dtype: BYTES length: 196608 } "
        "output { name: 'image' feature: 'image' decode_raw { stored: UINT8 shape: [256, 256, 3] } } "
        "batch { global_batch_size: 64 }",
        folder);
  table.add("200 KB images as uint8 / (read, CRC, one copy)", rate([&] { return images->pass(); }),
            compose({r, c, copy}), 0.75);
}

int run(int argc, char** argv) {
  CLI::App app("Rates of the host path beside their ceilings, on one core");
  int rounds = 7;
  std::string json, folder = "/tmp/feedline-bench";
  app.add_option("--rounds", rounds, "alternations; the median counts")->capture_default_str();
  app.add_option("--json", json, "also write the figures to this file");
  app.add_option("--data", folder, "where the data is made, about 400 MB")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof one, &one);
  mkdir(folder.c_str(), 0777);
  make_chess(folder + "/chess.tfrecord", 800'000);
  make_images(folder + "/images.tfrecord", 1000, 196608);

  Table table;
  std::map<std::string, std::unique_ptr<Fed>> fed;
  std::vector<std::byte> from(256 << 20), to(256 << 20);
  for (int round = 0; round < rounds; round++) {
    std::memset(from.data(), round, from.size());
    const double copy_bytes_s = rate([&] { return std::memcpy(to.data(), from.data(), to.size()), to.size(); });
    table.add("memory copy, in bytes/s", copy_bytes_s, copy_bytes_s, 0);
    chess_round(folder, table, copy_bytes_s, fed);
    image_round(folder, table, fed);
  }
  return table.print(json) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("feed_bench", [&] { return feedline::bench::run(argc, argv); });
}
