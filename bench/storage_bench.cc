// Compares the rate of a disk through feedline with fio: storage_bench [--data DIR] [--gb N] [--seconds S] [--rounds N]
//
// All reads are O_DIRECT, so that nothing comes from the page cache. bench/results/disk.md defines each metric.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "feedline/feeder.h"
#include "feedline/records.h"
#include "measure.h"

namespace feedline::bench {
namespace {

namespace fs = std::filesystem;

constexpr int files = 16, window = 1000;  // `window`: the samples that the shuffle mixes at a time

/// A load of MLPerf Storage. demand() is that of one accelerator, in bytes/s.
struct Load {
  std::string name;
  uint64_t record_bytes;
  int64_t batch;
  double step_s;
  double demand() const { return static_cast<double>(record_bytes) * static_cast<double>(batch) / step_s; }
};

std::string make_data(const std::string& dir, const Load& load, uint64_t bytes) {
  std::string made = fmt::format("{}/storage-{}-{}", dir, load.record_bytes, bytes);
  if (fs::exists(made)) return made;
  fs::create_directories(made + ".new");
  std::mt19937_64 random(1);
  std::vector<uint64_t> noise(load.record_bytes / 8 + 512);
  for (uint64_t& word : noise) word = random();
  for (int f = 0; f < files; f++) {
    RecordWriter writer(fmt::format("{}.new/part-{:02}", made, f));
    for (uint64_t i = 0; writer.bytes() < bytes / files; i++)
      writer.write(std::as_bytes(std::span(noise)).subspan(i * 8 % 4096, load.record_bytes));
    writer.close();
  }
  fs::rename(made + ".new", made);
  return made;
}

struct Rate {
  double bytes_s;
  double cpu_s_per_gb;
};

// Lets fio read one file after another, 512 KiB at a time with 64 reads in flight, as feedline does.
Rate fio(const std::string& dir, double seconds_long) {
  std::string names;
  for (int f = 0; f < files; f++) names += fmt::format("{}{}/part-{:02}", f ? ":" : "", dir, f);
  const std::string command = fmt::format(
      "fio --name=read --readonly --ioengine=io_uring --direct=1 --rw=read --bs=512k --iodepth=64 --time_based "
      "--file_service_type=sequential --runtime={:.0f} --filename={} --output-format=json",
      seconds_long, names);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  for (int c; pipe && (c = fgetc(pipe.get())) != EOF;) text += static_cast<char>(c);
  const auto report = nlohmann::json::parse(text, nullptr, false);
  if (report.is_discarded()) throw std::runtime_error("fio did not run; install it (apt-get install fio)");
  const auto& job = report.at("jobs").at(0);
  const double bytes_s = job.at("read").at("bw_bytes").get<double>();
  return {bytes_s, (job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>()) / 100 / (bytes_s / 1e9)};
}

Feeder make_feeder(const std::string& dir, const Load& load, int replicas) {
  Options options;
  options.devices.assign(static_cast<size_t>(replicas), host());
  options.io.direct = Toggle::on;
  return Feeder(parse_pipeline(fmt::format("source {{ files: 'part-*' record_type: RAW }} feature {{ name: 'record' "
                                           "dtype: BYTES length: {} }} batch {{ batch_size_per_replica: {} }} "
                                           "shuffle {{ buffer_size: {} }}",
                                           load.record_bytes, load.batch, window),
                               dir),
                options);
}

// Reads through a Feeder as fast as possible, for about `seconds_long`.
Rate stream(Feeder& feeder, const Load& load, double seconds_long) {
  double bytes = 0, wall = 0;
  const double used = cpu_seconds([&] {
    while (wall < seconds_long)
      wall += seconds([&] {
        if (feeder.next()) bytes += static_cast<double>(load.record_bytes);
      });
  });
  return {bytes / wall, used / (bytes / 1e9)};
}

// Measures fio and feedline in turn, because the disk of a shared machine changes from minute to minute. Returns the
// median of fio's rate.
double compare(const std::string& dir, const Load& load, int rounds, double seconds_long) {
  Feeder feeder = make_feeder(dir, {load.name, load.record_bytes, 1, 1}, 1);
  feeder.next();
  std::vector<double> ratio, rate, cpu, fio_rate, fio_cpu;
  for (int round = 0; round < rounds; round++) {
    const Rate theirs = fio(dir, seconds_long), ours = stream(feeder, load, seconds_long);
    ratio.push_back(ours.bytes_s / theirs.bytes_s);
    rate.push_back(ours.bytes_s / 1e9);
    cpu.push_back(ours.cpu_s_per_gb);
    fio_rate.push_back(theirs.bytes_s);
    fio_cpu.push_back(theirs.cpu_s_per_gb);
  }
  const auto [low, high] = std::minmax_element(ratio.begin(), ratio.end());
  fmt::print("{}: {:.2f} GB/s, {:.2f} of fio's {:.2f} ({:.2f} to {:.2f}); CPU s per GB: {:.3f}, fio {:.3f}\n",
             load.name, median(rate), median(ratio), median(fio_rate) / 1e9, *low, *high, median(cpu), median(fio_cpu));
  return median(fio_rate);
}

// Simulates as many accelerators as the disk could feed by fio's rate. Each sleeps for a step and then waits for its
// next batch. Prints the share of the time that they have worked.
void train(const std::string& dir, const Load& load, double fio_rate, double seconds_long) {
  const int accelerators = std::max(1, static_cast<int>(fio_rate / load.demand()));
  Feeder feeder = make_feeder(dir, load, accelerators);
  std::atomic<double> worked{0};  // seconds of all accelerators
  const auto train_for = [&](int steps) {
    std::vector<std::thread> threads;
    for (int r = 0; r < accelerators; r++)
      threads.emplace_back([&, r] {
        for (int step = 0; step < steps; step++) {
          worked += seconds([&] { std::this_thread::sleep_for(std::chrono::duration<double>(load.step_s)); });
          while (!feeder.next(r)) {
          }
        }
      });
    for (std::thread& thread : threads) thread.join();
  };
  train_for(static_cast<int>(window / load.batch) + 1);  // the start, in which the shuffle fills, is not measured
  worked = 0;
  const double wall = seconds([&] { train_for(static_cast<int>(seconds_long / load.step_s)); });
  fmt::print("{}: {} accelerators that want {:.0f} MB/s each: utilisation {:.4f}{}\n", load.name, accelerators,
             load.demand() / 1e6, worked / accelerators / wall,
             fio_rate < load.demand() ? " (the disk cannot feed one)" : "");
}

int run(int argc, char** argv) {
  CLI::App app("What a disk gives through feedline, beside fio", "storage_bench");
  std::string data = fs::temp_directory_path() / "feedline-bench";
  uint64_t gb = 4;
  double seconds_long = 5;
  int rounds = 5;
  app.add_option("--data", data, "where the data is made")->capture_default_str();
  app.add_option("--gb", gb, "of each of the two loads")->capture_default_str();
  app.add_option("--seconds", seconds_long, "of each measurement")->capture_default_str();
  app.add_option("--rounds", rounds, "of fio and feedline in turn; medians count")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  for (const Load& load :
       {Load{"ResNet-50, 150 KB", 150'000, 400, 0.224}, Load{"CosmoFlow, 2.83 MB", 2'830'000, 1, 0.0035}}) {
    const std::string dir = make_data(data, load, gb * 1'000'000'000);
    make_feeder(dir, load, 1);  // counts the records and stores the indexes
    train(dir, load, compare(dir, load, rounds, seconds_long), seconds_long);
  }
  return 0;
}

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("storage_bench", [&] { return feedline::bench::run(argc, argv); });
}
