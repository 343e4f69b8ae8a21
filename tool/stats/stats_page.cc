#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/format_count.h"
#include "tool/common/json.h"
#include "tool/stats/stats_table.h"
#include "tool/stats_page_head.h"

namespace feedline::tool {
namespace {

constexpr size_t shown_bars = 64;
constexpr double shown_integers = 64;
constexpr double chart_width = 480, chart_height = 120, letter_width = 7;

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

std::string text_svg(double x, std::string_view anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.4g}\" y=\"{:g}\" text-anchor=\"{}\">{}</text>\n", x, chart_height + 14, anchor,
                     escaped(text));
}

/// Returns a drawing of bars side by side. Below it are the names of all bars if `name_bars` is set and there is room
/// for them, and otherwise `first` and `last` at its ends.
std::string bars_svg(const std::vector<Bar>& bars, const std::string& first, const std::string& last, bool name_bars) {
  uint64_t most = 1;
  for (const Bar& bar : bars) most = std::max(most, bar.count);
  std::string svg = fmt::format("<svg role=\"img\" viewBox=\"0 0 {:g} {:g}\">\n", chart_width, chart_height + 18);
  const double step = chart_width / static_cast<double>(std::max<size_t>(bars.size(), 1));
  for (const Bar& bar : bars) name_bars = name_bars && static_cast<double>(bar.what.size()) * letter_width < step;
  for (size_t i = 0; i < bars.size(); i++) {
    const double height = chart_height * static_cast<double>(bars[i].count) / static_cast<double>(most);
    svg +=
        fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"><title>{}: {}</title></rect>\n",
                    step * static_cast<double>(i), chart_height - height, std::max(step * 0.9, 0.5), height,
                    escaped(bars[i].what), format_count(bars[i].count));
  }
  svg += fmt::format("<line x1=\"0\" y1=\"{0:g}\" x2=\"{1:g}\" y2=\"{0:g}\"/>\n", chart_height, chart_width);
  if (name_bars) {
    for (size_t i = 0; i < bars.size(); i++)
      svg += text_svg(step * (static_cast<double>(i) + 0.45), "middle", bars[i].what);
  } else {
    svg += text_svg(0, "start", first) + text_svg(chart_width, "end", last);
  }
  return svg + "</svg>\n";
}

/// Returns a drawing of labels or strings with their counts. If there are more than `shown_bars`, only the most
/// frequent are drawn.
std::string labels_svg(const Json& labels) {
  std::vector<Bar> bars;
  for (const Json& label : labels) {
    const std::string text = printable(value_text(label.at(0)));
    bars.push_back({text.empty() ? "(empty)" : text, label.at(1).get<uint64_t>()});
  }
  if (bars.empty()) return "";
  std::string remark;
  if (bars.size() > shown_bars) {
    remark = fmt::format("<p class=\"faint\">the {} most frequent of {} values</p>\n", shown_bars,
                         format_count(bars.size()));
    std::ranges::stable_sort(bars, std::ranges::greater(), &Bar::count);
    bars.resize(shown_bars);
  }
  return bars_svg(bars, bars.front().what, bars.back().what, true) + remark;
}

/// Returns a drawing of integers, with a bar for each integer from the smallest to the largest.
std::string integers_svg(const Json& numbers) {
  const auto least = numbers.at("min").get<int64_t>();
  std::vector<Bar> bars(static_cast<size_t>(numbers.at("max").get<int64_t>() - least + 1));
  for (size_t i = 0; i < bars.size(); i++) bars[i].what = std::to_string(least + static_cast<int64_t>(i));
  for (const Json& value : numbers.at("values"))
    bars[static_cast<size_t>(value.at(0).get<int64_t>() - least)].count = value.at(1).get<uint64_t>();
  return bars_svg(bars, bars.front().what, bars.back().what, true);
}

std::string histogram_svg(const Json& numbers) {
  const bool integers = numbers.at("min").is_number_integer() && !numbers.at("values").is_null();
  if (integers && numbers.at("max").get<double>() - numbers.at("min").get<double>() < shown_integers)
    return integers_svg(numbers);
  const Json& histogram = numbers.at("histogram");
  if (histogram.is_null()) return "<p class=\"faint\">no values</p>\n";
  std::vector<Bar> bars;
  for (size_t i = 0; i < histogram.at("counts").size(); i++)
    bars.push_back({fmt::format("{:.5g} to {:.5g}", histogram.at("edges")[i].get<double>(),
                                histogram.at("edges")[i + 1].get<double>()),
                    histogram.at("counts")[i].get<uint64_t>()});
  return bars_svg(bars, value_text(numbers.at("min")), value_text(numbers.at("max")), false);
}

std::string numbers_tables(const Json& numbers) {
  std::string lines;
  const auto line = [&](std::string_view what, const std::string& value) {
    lines += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", what, value);
  };
  const auto count = [&](const char* key, bool always) {
    if (!numbers.contains(key) || numbers.at(key).is_null()) return;
    const auto number = numbers.at(key).get<uint64_t>();
    if (always || number > 0) line(key, format_count(number));
  };
  count("missing", false);
  count("count", true);
  count("nan", false);
  count("infinite", false);
  count("zeros", true);
  count("distinct", true);
  for (const char* key : {"mean", "std"})
    if (!numbers.at(key).is_null()) line(key, value_text(numbers.at(key)));
  std::string table = "<table>\n" + lines + "</table>\n";
  if (numbers.at("quantiles").is_null()) return table;
  lines.clear();
  line("min", value_text(numbers.at("min")));
  for (const auto& [q, value] : numbers.at("quantiles").items())
    line(fmt::format("{:g} %", 100 * std::stod(q)), value_text(value));
  line("max", value_text(numbers.at("max")));
  return table + "<table>\n" + lines + "</table>\n";
}

std::string output_section(const Json& output) {
  std::string shape;
  for (const Json& axis : output.at("shape")) shape += (shape.empty() ? "" : ", ") + axis.dump();
  const auto name = output.at("name").get<std::string>();
  const bool missing = !output.at("missing").is_null() && output.at("missing").get<uint64_t>() > 0;
  std::string html = fmt::format(
      "<h2>{} <span class=\"faint\">{}{}{}, {}{}</span></h2>\n", escaped(printable(name)),
      output.at("dtype").get<std::string>(), shape.empty() ? "" : " [" + shape + "]",
      output.at("ragged").get<bool>() ? " ragged" : "", format_count(output.at("rows").get<uint64_t>(), "row"),
      missing ? fmt::format(", missing in {}", format_count(output.at("missing").get<uint64_t>())) : "");
  const auto section = [&](const std::string& title, const std::string& chart, const std::string& tables) {
    if (!title.empty()) html += fmt::format("<h3>{}</h3>\n", escaped(printable(title)));
    html += fmt::format("<div class=\"row\">\n<div class=\"chart\">\n{}</div>\n{}</div>\n", chart, tables);
  };
  const auto labels = [&](const char* key, const char* title) {
    if (output.contains(key) && !output[key].is_null() && !output[key].empty())
      section(title, labels_svg(output[key]), "");
  };
  labels("texts", "strings");
  labels("classes", "classes");
  for (const StatsRow& row : stats_rows(output))
    section(row.name == name ? (output.contains("classes") ? "numbers" : "") : row.name.substr(name.size() + 2),
            histogram_svg(*row.numbers), numbers_tables(*row.numbers));
  if (!output.at("normalize").is_null())
    html += fmt::format("<pre>{}</pre>\n", escaped(output.at("normalize").get<std::string>()));
  if (!output.at("class_weights").is_null()) {
    html += "<details><summary>class weights</summary>\n<table>\n";
    for (const Json& weight : output.at("class_weights"))
      html += fmt::format("<tr><td>{}</td><td>{:.6g}</td></tr>\n", escaped(printable(value_text(weight.at(0)))),
                          weight.at(1).get<double>());
    html += "</table>\n</details>\n";
  }
  return html;
}

}  // namespace

std::string stats_page(const Json& statistics) {
  std::string html = fmt::format("{}<h1>{}</h1>\n", page_head, stats_summary(statistics));
  for (const Json& output : statistics.at("outputs")) html += output_section(output);
  return html + "</body>\n</html>\n";
}

}  // namespace feedline::tool
