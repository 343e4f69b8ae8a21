// Measures how close feeding on the host comes to what the cores could do:
// feed_bench [--rounds N] [--threads N,...] [--json FILE] [--data DIR]
//
// Every figure is a rate in records/s with a warm page cache, on one CPU, and on each number of them that --threads
// gives. Each round measures every ceiling (a bare loop, ceilings.h) and every path through feedline once, in turn. A ratio is
// taken within a round. The program prints the median over the rounds with the smallest and the largest.
// bench/README.md defines each metric.
#include <fmt/format.h>
#include <oneapi/tbb/info.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "feed_paths.h"
#include "feedline/feeder.h"
#include "gpu/device/memory.h"
#include "measure.h"
#include "on_cpus.h"
#include "rounds.h"

namespace feedline::bench {
namespace {

namespace fs = std::filesystem;

constexpr size_t ring_bytes = 256 << 20;  // 3 batches of any path fit, and a memory copy is larger than the caches

class Bench {
 public:
  Bench(std::string folder, const std::vector<size_t>& counts)
      : folder_(std::move(folder)), cpus_(choose_cpus(std::ranges::max(counts))), tables_(counts, "records/s") {
    pin_all(cpus_);
    tbb::info::default_concurrency();  // oneTBB counts the CPUs only once, so it must see all of them now
    for (size_t t = 0; t < cpus_.size(); t++) rings_.push_back(gpu::Memory(ring_bytes));
    for (const gpu::Memory& ring : rings_) std::fill(ring.bytes().begin(), ring.bytes().end(), std::byte{1});
    fs::create_directories(folder_);
    for (const DataSet& set : sets_) make_file(file(set), set.records, set.record);
  }

  void round() {
    for (const DataSet& set : sets_) {
      const Rates one = measure(set, Cpus(cpus_).first(1), tables_.one);
      for (CpuTables::Many& on : tables_.many) {
        const Rates many = measure(set, Cpus(cpus_).first(on.cpus), on.rates);
        for (const Row& row : set.rows)
          if (std::holds_alternative<std::string>(row.work) && !row.one_core)
            on.scaling.add(name(set, row), many.at(row.name) / one.at(row.name), compose(row, many) / compose(row, one),
                           0.95);
      }
    }
  }

  bool print(const std::string& json_file) const { return tables_.print(json_file); }

 private:
  std::string file(const DataSet& set) const { return fs::absolute(folder_) / set.file; }
  static std::string name(const DataSet& set, const Row& row) {
    return fmt::format("{}: {}", set.title, title(row.name, row.against));
  }
  static double compose(const Row& row, const Rates& rates) { return composed_rate(row.name, row.against, rates); }

  Rates measure(const DataSet& set, Cpus cpus, Table& table) {
    pin_all(cpus);
    std::vector<Worker> workers;
    for (size_t t = 0; t < cpus.size(); t++)
      workers.emplace_back(file(set), set.records, t, cpus.size(), rings_[t].bytes());
    Rates rates;
    for (const Row& row : set.rows) {
      if (row.one_core && cpus.size() > 1) continue;
      const auto* loop = std::get_if<Loop>(&row.work);
      rates[row.name] = loop ? rate_of_loop(*loop, workers, cpus)
                             : rate([&, &feeder = feeder(set, row, cpus.size())] { return epoch(feeder); });
      table.add(name(set, row), rates[row.name], compose(row, rates), row.wanted);
    }
    return rates;
  }

  Feeder& feeder(const DataSet& set, const Row& row, size_t threads) {
    auto& feeder = feeders_[fmt::format("{}, {} threads", name(set, row), threads)];
    if (!feeder) {
      Options options;
      options.threads = static_cast<int>(threads);
      feeder = std::make_unique<Feeder>(
          set.pipeline.overlaid(std::get<std::string>(row.work)).with("source.files", file(set)), options);
    }
    return *feeder;
  }

  const std::string folder_;
  const std::vector<DataSet> sets_ = data_sets();
  const std::vector<int> cpus_;
  std::vector<gpu::Memory> rings_;  // one for each CPU
  std::map<std::string, std::unique_ptr<Feeder>> feeders_;
  CpuTables tables_;
};

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("feed_bench", [&] {
    return feedline::bench::run_rounds<feedline::bench::Bench>(argc, argv,
                                                               "Rates of the host path beside their ceilings", "1 GB");
  });
}
