// Measures what it costs if one rank reads rows and sends them to the others, instead of each rank reading them:
// distribute_bench [--ranks N] [--rounds N] [--data DIR]
//
// Ranks are threads with a communicator. Each feeds one replica with float32 boards from 229-byte records; the page
// cache is warm. bench/results/gpus.md defines the metrics.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "feedline/communicator.h"
#include "feedline/feeder.h"
#include "feedline/records.h"
#include "measure.h"

namespace feedline::bench {
namespace {

// The records resemble those of a chess network: 229 bytes, the board's planes first.
constexpr int64_t board_records = 400'000;

/// Makes a file of board_records records (98 MB) in the folder, unless the file exists, and returns its path.
std::string make_boards(const std::string& dir) {
  std::string file = dir + "/boards.tfrecord";
  std::filesystem::create_directories(dir);
  if (std::filesystem::exists(file)) return file;
  RecordWriter writer(file);
  std::string record(229, '\0');
  for (int64_t i = 0; i < board_records; i++) {
    for (size_t b = 0; b < record.size(); b++) record[b] = static_cast<char>(i * 131 + static_cast<int64_t>(b) * b);
    writer.write(std::as_bytes(std::span(record)));
  }
  writer.close();
  return file;
}

/// A way to get the rows to the ranks.
struct Way {
  const char* name;
  const char* mode;
  int parts;    // the number of parts into which ranks split the global batch; 0: one for each rank
  size_t than;  // the index of the way with which this way is compared
  std::vector<double> rows_s = {}, ratio = {};
  uint64_t bytes_sent = 0;
};

/// Returns the rows per second that all ranks together receive after the first epoch.
double rows_per_second(const std::string& file, int ranks, Way& way) {
  const Pipeline pipeline = parse_pipeline(fmt::format(
      "source {{ files: '{}' record_type: RAW index {{}} }} feature {{ name: 'record' dtype: BYTES length: 229 }} "
      "output {{ name: 'board' dtype: FLOAT32 feature: 'record' unpack_bits {{ shape: [8, 8, 24] }} }} "
      "batch {{ global_batch_size: 1024 }} distribute {{ mode: {} }} parallelism {{ threads: 1 }}",
      file, way.mode));
  const int parts = way.parts == 0 ? ranks : way.parts;
  std::vector<std::thread> threads;
  std::vector<double> took(static_cast<size_t>(ranks));
  std::vector<uint64_t> sent(took.size());
  auto ends = communicators_between_threads(ranks);
  for (size_t rank = 0; rank < took.size(); rank++)
    threads.emplace_back([&, rank, end = std::shared_ptr<Communicator>(std::move(ends[rank]))] {
      Options options;
      options.communicator = end;
      options.data_parallel_rank = static_cast<int>(rank) % parts;
      options.data_parallel_size = parts;
      Feeder feeder(pipeline, options);
      while (feeder.next()) {
      }
      took[rank] = seconds([&] {
        while (feeder.next()) {
        }
      });
      sent[rank] = feeder.report().sent_bytes;
    });
  for (std::thread& thread : threads) thread.join();
  way.bytes_sent = sent[0];
  return static_cast<double>(board_records / 1024 * 1024 * ranks / parts) / *std::max_element(took.begin(), took.end());
}

int run(int argc, char** argv) {
  std::string dir = (std::filesystem::temp_directory_path() / "feedline-distribute").string();
  int ranks = 2, rounds = 9;
  CLI::App app("What it costs to send rows on instead of reading them.");
  app.add_option("--ranks", ranks, "Threads that are ranks")->check(CLI::Range(1, 64));
  app.add_option("--rounds", rounds, "Of all ways, in turn")->check(CLI::PositiveNumber);
  app.add_option("--data", dir, "Where 98 MB of records are, or are made");
  CLI11_PARSE(app, argc, argv);
  const std::string file = make_boards(dir);
  std::vector<Way> ways = {{"parts, each rank reads its own", "SPLIT", 0, 0},
                           {"parts, SCATTER", "SCATTER", 0, 0},
                           {"all rows, each rank reads them", "SPLIT", 1, 2},
                           {"all rows, REPLICATE", "REPLICATE", 1, 2}};
  for (int round = 0; round < rounds; round++)
    for (Way& way : ways) {
      way.rows_s.push_back(rows_per_second(file, ranks, way));
      way.ratio.push_back(way.rows_s.back() / ways[way.than].rows_s.back());
    }
  fmt::print("{} ranks, {} rounds: rows/s of all ranks; of reading them (smallest to largest); bytes sent a record\n",
             ranks, rounds);
  for (const Way& way : ways) {
    const auto [least, most] = std::minmax_element(way.ratio.begin(), way.ratio.end());
    fmt::print("{:32} {:7.2f} M   {:.2f} ({:.2f} to {:.2f})   {:.0f}\n", way.name, median(way.rows_s) / 1e6,
               median(way.ratio), *least, *most, static_cast<double>(way.bytes_sent) / (2.0 * board_records));
  }
  return 0;
}

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("distribute_bench", [&] { return feedline::bench::run(argc, argv); });
}
