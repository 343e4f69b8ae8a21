// A benchmark that compares rates with ceilings in rounds, on one CPU and on several.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "feedline/feeder.h"
#include "table.h"

namespace feedline::bench {

using Rates = std::map<std::string, double>;  // by the names of rows

/// Feeds an epoch. Returns the number of its records.
inline uint64_t epoch(Feeder& feeder) {
  uint64_t records = 0;
  while (auto batch = feeder.next()) records += static_cast<uint64_t>(batch.valid_count());
  return records;
}

/// Returns the name of a row, with those of the rows that it is against.
inline std::string title(const std::string& name, const std::vector<std::string>& against) {
  return against.empty() ? name : fmt::format("{} / ({})", name, fmt::join(against, ", "));
}

/// Returns the rate of doing the work of all rows in `against`, one after another; of a row that is against none its
/// own.
inline double composed_rate(const std::string& name, const std::vector<std::string>& against, const Rates& rates) {
  double time = 0;
  for (const std::string& step : against) time += 1 / rates.at(step);
  return against.empty() ? rates.at(name) : 1 / time;
}

/// What is measured on one CPU and on each larger number of them, and how the rates grow.
struct CpuTables {
  struct Many {
    size_t cpus;
    Table rates, scaling;
  };
  /// `counts` are the numbers of CPUs. One is measured in any case.
  CpuTables(const std::vector<size_t>& counts, const std::string& unit) : one("1 core", unit) {
    for (const size_t cpus : counts)
      if (cpus > 1)
        many.push_back(
            {cpus, {fmt::format("{} cores", cpus), unit}, {fmt::format("{} cores against 1", cpus), "scaling"}});
  }

  Table one;
  std::vector<Many> many;

  /// Prints the tables, and `more` after them, and writes them to `json_file`, unless that is empty. Returns whether all
  /// wanted ratios are reached.
  bool print(const std::string& json_file, std::span<const Table> more = {}) const {
    nlohmann::json json;
    int missed = one.print(json);
    for (const Many& on : many) missed += on.rates.print(json) + on.scaling.print(json);
    for (const Table& table : more) missed += table.print(json);
    if (!json_file.empty()) std::ofstream(json_file) << json.dump(1) << '\n';
    return missed == 0;
  }
};

/// Reads the command line, runs the rounds of a Bench(folder, numbers of CPUs), and prints its tables. Returns the exit
/// status.
template <typename Bench>
int run_rounds(int argc, char** argv, const std::string& about, const std::string& data_size) {
  CLI::App app(about);
  int rounds = 7;
  std::vector<size_t> threads = {1};
  std::string json, folder = "/tmp/feedline-bench";
  app.add_option("--rounds", rounds, "alternations; the median counts")->capture_default_str();
  app.add_option("--threads", threads, "on so many CPUs, too, such as 2,4,8")->delimiter(',')->capture_default_str();
  app.add_option("--json", json, "also write the figures to this file");
  app.add_option("--data", folder, "where the data is made, about " + data_size)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  Bench bench(folder, threads);
  for (int round = 0; round < rounds; round++) bench.round();
  return bench.print(json) ? 0 : 1;
}

}  // namespace feedline::bench
