#include "table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "measure.h"

namespace feedline::bench {

void Table::add(const std::string& name, double value, double ceiling, double wanted) {
  auto line = std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) { return l.name == name; });
  if (line == lines_.end()) line = lines_.insert(line, {name, wanted, {}, {}, {}});
  line->values.push_back(value);
  line->ceilings.push_back(ceiling);
  line->ratios.push_back(value / ceiling);
}

int Table::print(nlohmann::json& json) const {
  int missed = 0;
  fmt::print("\n{:<66} {:>9} {:>9}  {:>17}  {:>6}\n", title_, unit_, "ceiling", "ratio (min..max)", "wanted");
  for (const Line& line : lines_) {
    const auto [low, high] = std::minmax_element(line.ratios.begin(), line.ratios.end());
    const double value = median(line.values), ceiling = median(line.ceilings), ratio = median(line.ratios);
    const bool good = ratio >= line.wanted;
    missed += !good;
    fmt::print("{:<66} {:>9.4g} {:>9.4g}  {:5.2f} ({:.2f}..{:.2f})  {:>6.2f}{}\n", line.name, value, ceiling, ratio,
               *low, *high, line.wanted, good ? "" : "  MISSED");
    json[title_].push_back({{"name", line.name},
                            {"value", value},
                            {"ceiling", ceiling},
                            {"ratio", ratio},
                            {"ratio_min", *low},
                            {"ratio_max", *high},
                            {"wanted", line.wanted}});
  }
  return missed;
}

}  // namespace feedline::bench
