// A table of rates beside their ceilings, collected over the rounds of a benchmark.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace feedline::bench {

/// Collects figures over the rounds, one line for each name, and prints them.
class Table {
 public:
  Table(std::string title, std::string unit) : title_(std::move(title)), unit_(std::move(unit)) {}
  /// Notes the figures of one round. `wanted` is the least ratio of value and ceiling; 0: none.
  void add(const std::string& name, double value, double ceiling, double wanted);
  /// Prints the medians of all lines, and appends them to `json` under the title. Returns how many miss the wanted
  /// ratio.
  int print(nlohmann::json& json) const;

 private:
  struct Line {
    std::string name;
    double wanted;
    std::vector<double> values, ceilings, ratios;
  };
  std::string title_, unit_;
  std::vector<Line> lines_;
};

}  // namespace feedline::bench
