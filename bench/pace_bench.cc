// Measures what a feed takes of the machine beside a slower trainer:
// pace_bench [--step-ms MS,...] [--replicas N,...] [--threads N,...] [--only SET] [--json FILE] [--data DIR]
//
// It prints the CPU time per record, summed over all threads, with a warm page cache: at full speed, and beside a
// trainer that takes a batch for each replica, holds the batches for a step and gives them back. For comparison it
// prints the same for the bare loops (ceilings.h) on one thread, because they too become slower after a pause: the
// caches then hold other data. bench/results/trainers.md defines each metric.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "feed_paths.h"
#include "feedline/feeder.h"
#include "gpu/device/memory.h"
#include "measure.h"
#include "picture_paths.h"
#include "unpack/unpack.h"

namespace feedline::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double measured_s = 0.5;   // the least time of the measured steps
constexpr int some_steps = 20;       // the fewest steps, measured and before; large batches have no more buffers
constexpr int several_bursts = 160;  // the fewest measured steps of a feed; it makes up to 32 small batches at a time
constexpr double warm_s = 0.3;       // the least time of the steps before the measured ones
constexpr double held_s = 2;         // how long the trainer holds its batches, to measure the CPU time of an idle feed

/// CPU seconds, and the numbers of records and steps for which they were spent.
struct Work {
  double cpu_s = 0;
  uint64_t records = 0;
  int steps = 0;
  double ns() const { return cpu_s / static_cast<double>(records) * 1e9; }
};

/// Calls step(), which returns its number of records, at the pace of a trainer that takes `pause` for each step;
/// nullopt: without pauses. Some unmeasured steps come first.
Work measured(std::optional<Clock::duration> pause, int fewest_steps, auto&& step) {
  auto next = Clock::now();
  const auto once = [&] {
    const uint64_t records = step();
    if (pause) std::this_thread::sleep_until(next = std::max(next + *pause, Clock::now()));
    return records;
  };
  const auto go_on_for = [&](double at_least_s, int steps) {
    uint64_t records = 0;
    double took_s = 0;
    int done = 0;
    for (; took_s < at_least_s || done < steps; done++) took_s += seconds([&] { records += once(); });
    return Work{0, records, done};
  };
  go_on_for(warm_s, some_steps);
  Work work;
  const double cpu_s = cpu_seconds([&] { work = go_on_for(measured_s, fewest_steps); });
  work.cpu_s = cpu_s;
  return work;
}

/// Does what measured() does, and subtracts the CPU time of the sleeping itself.
Work paced(std::optional<Clock::duration> pause, int fewest_steps, auto&& step) {
  Work work = measured(pause, fewest_steps, step);
  if (!pause) return work;
  const Work sleep = measured(pause, some_steps, [] { return 1; });
  work.cpu_s -= sleep.cpu_s / static_cast<double>(sleep.records) * work.steps;
  return work;
}

/// A trainer of several replicas on one thread. It holds the batches of a step until the next step.
class Trainer {
 public:
  Trainer(Feeder& feeder, int replicas) : feeder_(feeder), held_(static_cast<size_t>(replicas)) {}
  uint64_t step() {
    for (Batch& batch : held_) batch = Batch();
    uint64_t records = 0;
    for (size_t r = 0; r < held_.size(); r++) {
      held_[r] = feeder_.next(static_cast<int>(r));
      records += static_cast<uint64_t>(held_[r].valid_count());
    }
    return records;
  }

 private:
  Feeder& feeder_;
  std::vector<Batch> held_;
};

/// The calls of next() between two reports of a feed.
struct Calls {
  uint64_t count = 0;
  double ready = 0, p99_us = 0;

  Calls(const Report& before, const Report& after) {
    std::map<double, uint64_t> took(after.next_us.histogram.begin(), after.next_us.histogram.end());
    const uint64_t earlier = counted(before);
    for (const auto& [us, calls] : before.next_us.histogram) took[us] -= calls;
    count = counted(after) - earlier;
    ready = (after.data_readiness_ratio * static_cast<double>(counted(after)) -
             before.data_readiness_ratio * static_cast<double>(earlier)) /
            static_cast<double>(count);
    uint64_t seen = 0;
    for (auto it = took.begin(); it != took.end() && seen * 100 < count * 99; ++it) {
      seen += it->second;
      p99_us = it->first;
    }
  }

 private:
  static uint64_t counted(const Report& report) {
    uint64_t calls = 0;
    for (const auto& [us, of_them] : report.next_us.histogram) calls += of_them;
    return calls;
  }
};

/// Returns the row of a data set whose pipeline makes the tensors for a trainer.
const Row& full_path(const DataSet& set) {
  const auto is_full = [](const Row& row) {
    return row.name == "board, flags and score" || row.name == "float32" || row.name == "dense arrays" ||
           row.name == "uint8";
  };
  return *std::find_if(set.rows.begin(), set.rows.end(), is_full);
}

class Bench {
 public:
  explicit Bench(std::string folder) : folder_(std::move(folder)), ring_(ring_bytes) {
    std::fill(ring_.bytes().begin(), ring_.bytes().end(), std::byte{1});
    fs::create_directories(folder_);
  }

  void measure(const DataSet& set, const std::vector<int>& replicas, const std::vector<int>& threads,
               const std::vector<double>& steps_ms) {
    make_file(file(set), set.records, set.record);
    Worker reader(file(set), set.records, 0, 1, ring_.bytes());
    read(reader);  // fills the page cache
    bare(set, steps_ms);
    for (const int r : replicas)
      for (const int t : threads) feed(set, r, t, steps_ms);
  }
  /// Unpacks boards into three batches in turn on one thread: the cost of writing to memory that has left the caches.
  void stores(const std::vector<double>& steps_ms) {
    constexpr size_t rows = 512, stored = 192;
    unpack::UnpackSpec board;
    board.shape = {8, 8, 24};
    board.stride_bits = {8 * 24, 24, 1};
    board.out = DType::float32;
    const std::vector<std::byte> boards(rows * stored);
    std::vector<const std::byte*> at;
    for (size_t row = 0; row < rows; row++) at.push_back(boards.data() + row * stored);
    const size_t batch_bytes = rows * static_cast<size_t>(board.shape.elements()) * size_of(board.out);
    for (const auto& [name, how] :
         {std::pair("as usual", unpack::Stores::cached), std::pair("past the caches", unpack::Stores::streaming)}) {
      const unpack::Unpacker unpack(board, simd_level(), how);
      size_t batch = 0;
      const auto step = [&] {
        unpack(at, ring_.bytes().data() + batch++ % 3 * batch_bytes);
        return rows;
      };
      print(fmt::format("chess: boards written {}", name), paced({}, some_steps, step), steps_ms,
            [&](Clock::duration pause) { return paced(pause, some_steps, step); });
    }
  }
  const nlohmann::json& json() const { return json_; }

 private:
  static constexpr size_t ring_bytes = 256 << 20;

  std::string file(const DataSet& set) const { return fs::absolute(folder_) / set.file; }

  /// Measures, on one thread, the bare loops with which feed() is compared, without reading. Each step is over the
  /// records of one read.
  void bare(const DataSet& set, const std::vector<double>& steps_ms) {
    Worker worker(file(set), set.records, 0, 1, ring_.bytes());
    std::vector<Loop> loops;
    for (const Row& row : set.rows)
      for (const std::string& name : full_path(set).against)
        if (row.name == name && name != "read") loops.push_back(std::get<Loop>(row.work));
    const auto step = [&] {
      uint64_t records = 0;
      for (const Loop& loop : loops) records = loop(worker);
      return records;
    };
    print(fmt::format("{}: bare loops, without reading", set.title), paced({}, some_steps, step), steps_ms,
          [&](Clock::duration pause) { return paced(pause, some_steps, step); });
  }

  /// Measures a feed at full speed, at each pace, and while the trainer only holds its batches.
  void feed(const DataSet& set, int replicas, int threads, const std::vector<double>& steps_ms) {
    Options options;
    options.devices.assign(static_cast<size_t>(replicas), host());
    options.threads = threads;
    const Pipeline path = set.pipeline.overlaid(std::get<std::string>(full_path(set).work)).with("epoch.repeat", "-1");
    const Pipeline pipeline =
        path.with("source.files", file(set)).with("batch.global_batch_size", std::to_string(set.batch * replicas));
    const std::string name =
        fmt::format("{}: {} replica{}, {} threads", set.title, replicas, replicas == 1 ? "" : "s", threads);
    Feeder feeder(pipeline, options);
    Trainer trainer(feeder, replicas);
    const Work full = paced({}, some_steps, [&] { return trainer.step(); });
    std::vector<Calls> calls;
    print(name, full, steps_ms, [&](Clock::duration pause) {
      const Report before = feeder.report();
      const Work work = paced(pause, several_bursts, [&] { return trainer.step(); });
      calls.emplace_back(before, feeder.report());
      return work;
    });
    const double held =
        cpu_seconds([] { std::this_thread::sleep_for(std::chrono::duration<double>(held_s)); }) / held_s;
    fmt::print("{:<62}", "  a batch was ready, % of calls");
    for (const Calls& of : calls) fmt::print(" {:>9.2f}      ", of.ready * 100);
    fmt::print("\n{:<62}", "  next(): p99, us");
    for (const Calls& of : calls) fmt::print(" {:>9.1f}      ", of.p99_us);
    fmt::print("\n  while batches are held {:.2f} % of a CPU\n", held * 100);
    nlohmann::json& line = json_.back();
    for (size_t i = 0; i < calls.size(); i++)
      line["paced"][i].update({{"ready", calls[i].ready}, {"next_p99_us", calls[i].p99_us}});
    line["held_cpu"] = held;
  }

  void print(const std::string& name, const Work& full, const std::vector<double>& steps_ms, auto&& at) {
    fmt::print("{:<52} {:>9.4g}", name, full.ns());
    nlohmann::json line{{"name", name}, {"full_ns", full.ns()}};
    for (const double ms : steps_ms) {
      const Work work = at(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(ms)));
      fmt::print(" {:>9.4g} {:>5.2f}", work.ns(), work.ns() / full.ns());
      line["paced"].push_back({{"step_ms", ms}, {"ns", work.ns()}, {"ratio", work.ns() / full.ns()}});
      std::fflush(stdout);
    }
    fmt::print("\n");
    json_.push_back(line);
  }

  const std::string folder_;
  gpu::Memory ring_;
  nlohmann::json json_ = nlohmann::json::array();
};

int run(int argc, char** argv) {
  CLI::App app("CPU time per record beside a slower trainer");
  std::vector<double> steps_ms = {1, 5, 20, 100};
  std::vector<int> replicas = {1, 2, 8}, threads = {1, 0};
  std::string only, json, folder = "/tmp/feedline-bench";
  app.add_option("--step-ms", steps_ms, "how long steps take")->delimiter(',');
  app.add_option("--replicas", replicas, "how many of them")->delimiter(',');
  app.add_option("--threads", threads, "of the feed; 0: as many as there are CPUs")->delimiter(',');
  app.add_option("--only", only, "only the data set of this title");
  app.add_option("--json", json, "also write the figures to this file");
  app.add_option("--data", folder, "where the data is made, about 1 GB")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  Bench bench(folder);
  fmt::print("{:<52} {:>9}", "CPU ns per record", "at full");
  for (const double ms : steps_ms) fmt::print(" {:>9} ratio", fmt::format("{:g} ms", ms));
  fmt::print("\n");
  if (only.empty()) bench.stores(steps_ms);
  std::vector<DataSet> sets = data_sets();
  sets.push_back(jpeg_set());
  for (const DataSet& set : sets)
    if (only.empty() || set.title == only) bench.measure(set, replicas, threads, steps_ms);
  if (!json.empty()) std::ofstream(json) << bench.json().dump(1) << '\n';
  return 0;
}

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("pace_bench", [&] { return feedline::bench::run(argc, argv); });
}
