// Measures how the counting pass scales and what an index saves: index_bench [--rounds N] [--threads T] [--data DIR]
//
// The page cache is warm. Each round measures everything once, in turn. A ratio is taken within a round. The program
// prints the median over the rounds with the smallest and the largest. bench/results/engine.md defines each metric.
#include <fcntl.h>
#include <fmt/format.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/machine.h"
#include "feedline/records.h"
#include "flowgraph/data/count_data.h"
#include "io/index/count_records.h"
#include "io/index/index_store.h"
#include "io/records/crc32c.h"
#include "io/records/record_stream.h"
#include "measure.h"

namespace feedline::bench {
namespace {

namespace fs = std::filesystem;

constexpr size_t payload_bytes = 229;  // as in the record of a chess position

void make_file(const std::string& file, uint64_t bytes) {
  if (fs::exists(file)) return;
  std::mt19937_64 random(1);
  std::vector<uint64_t> noise(1 << 16);
  for (uint64_t& word : noise) word = random();
  RecordWriter writer(file);
  for (uint64_t i = 0; writer.bytes() < bytes; i++)
    writer.write(std::as_bytes(std::span(noise)).subspan(i * 7 % (1 << 18), payload_bytes));
  writer.close();
}

// The ceiling of counting: pread and CRC32C of every byte. Each thread reads one part of the file.
void read_and_crc(const std::string& file, unsigned threads) {
  const uint64_t size = fs::file_size(file), part = size / threads + 1;
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < threads; t++)
    pool.emplace_back([&, t] {
      const int fd = open(file.c_str(), O_RDONLY);
      std::vector<std::byte> block(256 << 10);
      volatile uint32_t crc = 0;
      const uint64_t end = std::min(size, (t + 1) * part);
      for (uint64_t at = t * part; at < end;) {
        const ssize_t got = pread(fd, block.data(), std::min<uint64_t>(block.size(), end - at), static_cast<off_t>(at));
        if (got <= 0) std::abort();
        const auto bytes = std::span(block).first(static_cast<size_t>(got));
        // One checksum for as many bytes as a record has.
        for (size_t i = 0; i < bytes.size(); i += payload_bytes)
          crc = crc ^ io::crc32c(bytes.subspan(i, std::min(payload_bytes, bytes.size() - i)));
        at += bytes.size();
      }
      close(fd);
    });
  for (std::thread& thread : pool) thread.join();
}

void count(const std::vector<std::string>& files, int threads) {
  tbb::task_arena arena(threads);
  arena.execute([&] {
    tbb::parallel_for(size_t{0}, files.size(), [&](size_t i) {
      if (!io::count_records(files[i], {}).bad.empty()) std::abort();
    });
  });
}

// Finds and verifies all records as the counting pass does, but does nothing with them.
void scan(const std::string& file) {
  io::RecordStream stream(file, Compression::none, io::default_record_limit);
  while (stream.next() != io::RecordStream::Found::end) {
  }
}

class Table {
 public:
  void add(const std::string& name, double value) {
    if (!values_.count(name)) names_.push_back(name);
    values_[name].push_back(value);
  }
  void print() {
    fmt::print("{:60} {:>10}  {}\n", "", "median", "smallest to largest");
    for (const std::string& name : names_) {
      auto& values = values_[name];
      std::sort(values.begin(), values.end());
      fmt::print("{:60} {:10.4g}  {:.4g} to {:.4g}\n", name, median(values), values.front(), values.back());
    }
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::vector<double>> values_;
};

int run(int argc, char** argv) {
  CLI::App app("How counting scales, and what an index saves");
  int rounds = 7, threads = static_cast<int>(usable_cpus());
  std::string folder = "/tmp/feedline-bench";
  app.add_option("--rounds", rounds, "alternations; the median counts")->capture_default_str();
  app.add_option("--threads", threads, "against one")->capture_default_str();
  app.add_option("--data", folder, "where the data is made, about 2.2 GB")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  constexpr uint64_t huge_bytes = 1'000'000'000;
  fs::create_directories(folder + "/index/many");
  const std::string huge = folder + "/index/huge";
  make_file(huge, huge_bytes);
  std::vector<std::string> shards;
  for (int i = 0; i < 16; i++) {
    shards.push_back(fmt::format("{}/index/shard-{:02}", folder, i));
    make_file(shards.back(), huge_bytes / 16);
  }
  // A thousand names (hard links) of one file. Each name gets its own index.
  const std::string small = folder + "/index/small";
  make_file(small, 16 << 20);
  std::error_code there;
  for (int i = 0; i < 1000; i++)
    fs::create_hard_link(small, fmt::format("{}/index/many/shard-{:03}", folder, i), there);
  const auto many = [&](const char* mode) {
    return flow::validate(parse_pipeline(
        fmt::format(
            "source {{ files: 'shard-*' record_type: RAW index {{ mode: {} }} }} batch {{ global_batch_size: 1 }}",
            mode),
        folder + "/index/many"));
  };
  flow::count_data(many("BUILD"), threads, {});
  const flow::PipelineSpec valid = many("REQUIRE");

  Table table;
  for (int round = 0; round < rounds; round++) {
    const double ceiling_1 = seconds([&] { read_and_crc(huge, 1); });
    const double ceiling_n = seconds([&] { read_and_crc(huge, static_cast<unsigned>(threads)); });
    const double huge_1 = seconds([&] { count({huge}, 1); });
    const double huge_n = seconds([&] { count({huge}, threads); });
    const double shards_n = seconds([&] { count(shards, threads); });
    const double scan_cpu = cpu_seconds([&] { scan(huge); });
    const double count_cpu = cpu_seconds([&] { count({huge}, 1); });
    const double ranges_cpu = cpu_seconds([&] { count({huge}, threads); });
    const double start_s = seconds([&] { flow::count_data(valid, threads, {}); });
    const std::string n = fmt::format("{} threads", threads);
    table.add("read, CRC on 1 thread, GB/s", 1 / ceiling_1);
    table.add(fmt::format("read, CRC on {}, GB/s", n), 1 / ceiling_n);
    table.add("one file on 1 thread, GB/s", 1 / huge_1);
    table.add(fmt::format("one file on {}, GB/s", n), 1 / huge_n);
    table.add(fmt::format("scaling of read, CRC from 1 to {}", n), ceiling_1 / ceiling_n);
    table.add(fmt::format("scaling of one file from 1 to {}", n), huge_1 / huge_n);
    table.add("one file / 16 shards, time", huge_n / shards_n);
    table.add("one file on 1 thread / its scan alone, CPU time", count_cpu / scan_cpu);
    table.add(fmt::format("one file on {} / on 1 thread, CPU time", n), ranges_cpu / count_cpu);
    table.add("start over 1000 shards with valid indexes, ms", 1e3 * start_s);
  }
  table.print();
  return 0;
}

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("index_bench", [&] { return feedline::bench::run(argc, argv); });
}
