#include "tool/stats/stats_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/format_count.h"
#include "tool/stats/stats_table.h"

namespace feedline::cli {
namespace {

constexpr size_t shown_labels = 64;
constexpr double chart_width = 480, chart_height = 120;

constexpr std::string_view head = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>feedline stats</title>
<style>
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --faint: #667; --line: #d8dce2; --bar: #2f6fb3; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --ink: #e4e7eb; --faint: #99a3ad; --line: #333a42; --bar: #6aa7e8; }
}
body { background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto;
       max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; border-top: 1px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1rem; margin-bottom: 0.2rem; }
.faint { color: var(--faint); font-weight: normal; }
.row { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: 0.1rem 0.8rem 0.1rem 0; text-align: left; }
td:nth-child(2) { text-align: right; }
svg { background: transparent; max-width: 100%; } rect { fill: var(--bar); }
text { fill: var(--faint); font-size: 11px; } line { stroke: var(--line); }
pre { border: 1px solid var(--line); padding: 0.5rem; overflow-x: auto; }
</style>
</head>
<body>
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

struct Bar {
  std::string what;  // what the bar counts, for the reader who points at it
  uint64_t count = 0;
};

/// Returns a drawing of bars side by side, with `first` and `last` below its ends.
std::string bars_svg(const std::vector<Bar>& bars, const std::string& first, const std::string& last) {
  uint64_t most = 1;
  for (const Bar& bar : bars) most = std::max(most, bar.count);
  std::string svg = fmt::format("<svg role=\"img\" width=\"{0:g}\" height=\"{1:g}\" viewBox=\"0 0 {0:g} {1:g}\">\n",
                                chart_width, chart_height + 18);
  const double step = chart_width / static_cast<double>(std::max<size_t>(bars.size(), 1));
  for (size_t i = 0; i < bars.size(); i++) {
    const double height = chart_height * static_cast<double>(bars[i].count) / static_cast<double>(most);
    svg +=
        fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"><title>{}: {}</title></rect>\n",
                    step * static_cast<double>(i), chart_height - height, std::max(step * 0.9, 0.5), height,
                    escaped(bars[i].what), format_count(bars[i].count));
  }
  svg += fmt::format("<line x1=\"0\" y1=\"{0:g}\" x2=\"{1:g}\" y2=\"{0:g}\"/>\n", chart_height, chart_width);
  svg += fmt::format("<text x=\"0\" y=\"{:g}\">{}</text>\n", chart_height + 14, escaped(first));
  return svg + fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">{}</text>\n</svg>\n", chart_width,
                           chart_height + 14, escaped(last));
}

/// Returns a drawing of labels or strings with their counts, the most frequent of them if there are many.
std::string labels_svg(const Json& labels) {
  std::vector<Bar> bars;
  for (const Json& label : labels) bars.push_back({printable(value_text(label[0])), label[1].get<uint64_t>()});
  if (bars.empty()) return "";
  std::string remark;
  if (bars.size() > shown_labels) {
    remark =
        fmt::format("<p class=\"faint\">the {} most frequent of {}</p>\n", shown_labels, format_count(bars.size()));
    std::ranges::stable_sort(bars, std::ranges::greater(), &Bar::count);
    bars.resize(shown_labels);
  }
  return bars_svg(bars, bars.front().what, bars.back().what) + remark;
}

std::string histogram_svg(const Json& numbers) {
  const Json& values = numbers["values"];
  if (!values.is_null() && values.size() <= shown_labels) return labels_svg(values);
  const Json& histogram = numbers["histogram"];
  if (histogram.is_null()) return "<p class=\"faint\">no values</p>\n";
  std::vector<Bar> bars;
  for (size_t i = 0; i < histogram["counts"].size(); i++)
    bars.push_back(
        {fmt::format("{:.5g} to {:.5g}", histogram["edges"][i].get<double>(), histogram["edges"][i + 1].get<double>()),
         histogram["counts"][i].get<uint64_t>()});
  return bars_svg(bars, value_text(numbers["min"]), value_text(numbers["max"]));
}

std::string numbers_table(const Json& numbers) {
  std::string table = "<table>\n";
  const auto line = [&](std::string_view what, const Json& value) {
    if (!value.is_null())
      table += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", what,
                           value.is_number_unsigned() ? format_count(value.get<uint64_t>()) : value_text(value));
  };
  if (numbers.contains("missing")) line("missing", numbers["missing"]);
  for (const char* key : {"count", "nan", "infinite", "zeros", "distinct", "min", "max", "mean", "std"})
    line(key, numbers[key]);
  if (!numbers["quantiles"].is_null())
    for (const auto& [q, value] : numbers["quantiles"].items()) line(fmt::format("{:g} %", 100 * std::stod(q)), value);
  return table + "</table>\n";
}

std::string output_section(const Json& output) {
  std::string shape;
  for (const Json& axis : output["shape"]) shape += (shape.empty() ? "" : ", ") + axis.dump();
  std::string html = fmt::format(
      "<h2>{} <span class=\"faint\">{} [{}]{}, {}{}</span></h2>\n",
      escaped(printable(output["name"].get<std::string>())), output["dtype"].get<std::string>(), shape,
      output["ragged"].get<bool>() ? " ragged" : "", format_count(output["rows"].get<uint64_t>(), "row"),
      output["missing"].is_null() ? ""
                                  : fmt::format(", missing in {}", format_count(output["missing"].get<uint64_t>())));
  for (const StatsRow& row : stats_rows(output))
    html += fmt::format("<h3>{}</h3>\n<div class=\"row\">\n{}{}</div>\n", escaped(printable(row.name)),
                        histogram_svg(*row.numbers), numbers_table(*row.numbers));
  if (output.contains("texts") && !output["texts"].is_null())
    html += fmt::format("<h3>strings</h3>\n{}", labels_svg(output["texts"]));
  if (!output["normalize"].is_null())
    html += fmt::format("<pre>{}</pre>\n", escaped(output["normalize"].get<std::string>()));
  if (!output["class_weights"].is_null()) {
    html += "<details><summary>class weights</summary>\n<table>\n";
    for (const Json& weight : output["class_weights"])
      html += fmt::format("<tr><td>{}</td><td>{:.6g}</td></tr>\n", escaped(printable(value_text(weight[0]))),
                          weight[1].get<double>());
    html += "</table>\n</details>\n";
  }
  return html;
}

}  // namespace

std::string stats_page(const Json& statistics) {
  const auto samples = statistics["samples"].get<uint64_t>();
  std::string html(head);
  html += fmt::format("<h1>{}{}, {}</h1>\n", format_count(samples, "sample"),
                      statistics["samples_of_data"].is_null()
                          ? ""
                          : " of " + format_count(statistics["samples_of_data"].get<uint64_t>()),
                      format_count(statistics["bad_records"].get<uint64_t>(), "bad record"));
  for (const Json& output : statistics["outputs"]) html += output_section(output);
  return html + "</body>\n</html>\n";
}

}  // namespace feedline::cli
