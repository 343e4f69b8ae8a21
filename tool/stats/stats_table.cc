#include "tool/stats/stats_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tool/common/json.h"
#include "tool/common/terminal.h"

namespace feedline::tool {
namespace {

constexpr size_t columns = 11, shown_labels = 12;
using Row = std::array<std::string, columns>;

std::string number_text(const Json& number) {
  if (number.is_null()) return "-";
  return number.is_number_integer() ? number.dump() : fmt::format("{:.5g}", number.get<double>());
}

Row table_row(const StatsRow& row) {
  const Json& numbers = *row.numbers;
  const Json& at = numbers.at("quantiles");
  const auto quantile = [&](const char* key) { return at.is_null() ? "-" : number_text(at.at(key)); };
  return {printable(row.name),
          format_count(numbers.at("count").get<uint64_t>()),
          format_count(numbers.at("nan").get<uint64_t>() + numbers.at("infinite").get<uint64_t>()),
          format_count(numbers.at("zeros").get<uint64_t>()),
          number_text(numbers.at("min")),
          quantile("0.05"),
          quantile("0.5"),
          quantile("0.95"),
          number_text(numbers.at("max")),
          number_text(numbers.at("mean")),
          number_text(numbers.at("std"))};
}

std::string aligned(const std::vector<Row>& rows) {
  std::array<size_t, columns> widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < columns; i++) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t i = 1; i < columns; i++) line += fmt::format("  {:>{}}", row[i], widths[i]);
    text += line + "\n";
  }
  return text;
}

/// Returns the first of some labels with their numbers: "3: 1.02, 7: 0.98 and 8 more".
std::string list_labels(const Json& labels, const auto& text_of) {
  std::string text;
  for (size_t i = 0; i < std::min(labels.size(), shown_labels); i++)
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", printable(value_text(labels.at(i).at(0))),
                        text_of(labels.at(i).at(1)));
  if (labels.size() > shown_labels) text += fmt::format(" and {} more", labels.size() - shown_labels);
  return text;
}

}  // namespace

std::vector<StatsRow> stats_rows(const Json& output) {
  std::vector<StatsRow> rows;
  const auto name = output.at("name").get<std::string>();
  if (output.contains("numbers")) rows.push_back({name, &output.at("numbers")});
  if (output.contains("parts"))
    for (const Json& part : output.at("parts"))
      rows.push_back({name + ": " + part.at("name").get<std::string>(), &part});
  if (output.contains("sizes")) rows.push_back({name + ": bytes", &output.at("sizes")});
  if (output.contains("lengths")) rows.push_back({name + ": length", &output.at("lengths")});
  if (output.contains("step_lengths")) rows.push_back({name + ": length of a step", &output.at("step_lengths")});
  return rows;
}

std::string value_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? fmt::format("{:.6g}", value.get<double>()) : value.dump();
}

std::string stats_summary(const Json& statistics) {
  const auto samples = statistics.at("samples").get<uint64_t>();
  std::string text = format_count(samples, "sample");
  if (const Json& all = statistics.at("samples_of_data"); !all.is_null() && all.get<uint64_t>() != samples)
    text += fmt::format(" of {}", format_count(all.get<uint64_t>()));
  text += fmt::format(", {}", format_count(statistics.at("bad_records").get<uint64_t>(), "bad record"));
  if (const Json& bad = statistics.at("bad_records_of_data"); !bad.is_null() && bad.get<uint64_t>() > 0)
    text += fmt::format(", and {} in all the data", format_count(bad.get<uint64_t>()));
  return text;
}

std::string stats_table(const Json& statistics) {
  std::string text = stats_summary(statistics) + "\n\n";
  std::vector<Row> rows = {
      {"output", "count", "not finite", "zeros", "min", "5 %", "50 %", "95 %", "max", "mean", "std"}};
  for (const Json& output : statistics.at("outputs"))
    for (const StatsRow& row : stats_rows(output)) rows.push_back(table_row(row));
  text += aligned(rows);
  for (const Json& output : statistics.at("outputs")) {
    std::string more;
    if (const Json& labels = output.at("labels"); !labels.is_null()) {
      const auto share = [&](const Json& count) {
        return fmt::format("{:.3g} %", 100 * count.get<double>() / output.at("labelled").get<double>());
      };
      more += fmt::format("  {}  {}\n", format_count(labels.size(), "label"), list_labels(labels, share));
      const auto weight = [](const Json& number) { return fmt::format("{:.4g}", number.get<double>()); };
      more += fmt::format("  class weights  {}\n", list_labels(output.at("class_weights"), weight));
    }
    const auto tell_missing = [&](const Json& missing, const std::string& what) {
      if (!missing.is_null() && missing.get<uint64_t>() > 0)
        more += fmt::format("  {}missing in {} of {}\n", what, format_count(missing.get<uint64_t>()),
                            format_count(output.at("rows").get<uint64_t>(), "row"));
    };
    tell_missing(output.at("missing"), "");
    if (output.contains("parts"))
      for (const Json& part : output.at("parts"))
        if (part.contains("missing"))
          tell_missing(part.at("missing"), printable(part.at("name").get<std::string>()) + " ");
    if (!output.at("normalize").is_null()) more += fmt::format("  {}\n", output.at("normalize").get<std::string>());
    if (!more.empty()) text += fmt::format("\n{}\n{}", printable(output.at("name").get<std::string>()), more);
  }
  return text;
}

}  // namespace feedline::tool
