#include "tool/feeding/feed_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/byte_size.h"
#include "base/format_count.h"
#include "base/utf8.h"
#include "tool/common/json.h"
#include "tool/common/terminal.h"

namespace feedline::tool {
namespace {

constexpr size_t bar_columns = 20, most_errors = 3;

class View {
 public:
  View(const Json& report, const Json& before, double seconds) : report_(report), before_(before), seconds_(seconds) {}

  std::vector<std::string> lines(size_t width) const {
    std::vector<std::string> lines = {position()};
    wrap(printable(report_.at("verdict").get<std::string>()), width, lines);
    lines.push_back(rates());
    for (size_t i = 0; i < report_.at("stages").size(); i++) lines.push_back(stage(i));
    if (const auto bad = report_.at("bad_records").get<uint64_t>(); bad > 0) {
      lines.push_back(format_count(bad, "bad record"));
      const Json& errors = report_.at("errors");
      for (size_t i = 0; i < std::min(errors.size(), most_errors); i++)
        lines.push_back("  " + printable(errors[i].at("message").get<std::string>()));
    }
    for (std::string& line : lines) line.resize(cut_text(line, width).size());
    return lines;
  }

 private:
  /// Returns by how much a counter has grown per second.
  double rate(const Json& now, const Json& then) const {
    if (seconds_ <= 0) return 0;
    const double before = then.is_null() ? 0 : then.get<double>();
    constexpr double most = 1e18;  // fits in 64 bits; more than any feed reaches, but a report may say anything
    return std::min(std::max(0.0, now.get<double>() - before) / seconds_, most);
  }
  double rate(const char* key) const { return rate(report_.at(key), before_.is_null() ? Json() : before_.at(key)); }

  std::string position() const {
    const auto step = report_.at("step").get<int64_t>(), steps = report_.at("epoch_steps").get<int64_t>();
    std::string text = fmt::format("rank {} of {}   epoch {}, step {}", report_.at("rank").get<int>(),
                                   report_.at("world_size").get<int>(), format_count(report_.at("epoch")),
                                   format_count(static_cast<uint64_t>(step)));
    if (steps >= 0) {
      text += fmt::format(" of {}", format_count(static_cast<uint64_t>(steps)));
      if (const double steps_per_s = rate("steps"); steps_per_s > 0 && steps > step)
        text += fmt::format(", {} left",
                            format_seconds((static_cast<double>(steps) - static_cast<double>(step)) / steps_per_s));
    }
    const Json& error = report_.at("error");
    return text + (error.is_null() ? "" : "   ended: " + printable(error.at("message").get<std::string>()));
  }

  std::string rates() const {
    const Json& next = report_.at("next_us");
    return fmt::format("{} records/s, {}/s read   next() waits {:.1f} % of the time, p50 {:.1f} us, p99 {:.1f} us",
                       format_rate(rate("records")), format_byte_size(static_cast<uint64_t>(rate("read_bytes"))),
                       100 * report_.at("next_wait_ratio").get<double>(), next.at("p50").get<double>(),
                       next.at("p99").get<double>());
  }

  std::string stage(size_t number) const {
    const Json& now = report_.at("stages")[number];
    Json then;
    if (!before_.is_null() && number < before_.at("stages").size()) then = before_.at("stages")[number];
    const double busy = rate(now.at("busy_s"), then.is_null() ? Json() : then.at("busy_s"));
    const double messages = rate(now.at("messages"), then.is_null() ? Json() : then.at("messages"));
    const double share = std::min(1.0, busy / std::max(1, report_.at("threads").get<int>()));
    const auto filled = static_cast<size_t>(std::lround(share * static_cast<double>(bar_columns)));
    return fmt::format("  {:<12} [{}{}] {:5.2f} threads   queue {:>6}   {:>8}/s",
                       printable(now.at("name").get<std::string>()), std::string(filled, '#'),
                       std::string(bar_columns - filled, ' '), busy,
                       format_count(static_cast<uint64_t>(std::max<int64_t>(0, now.at("queue").get<int64_t>()))),
                       format_rate(messages));
  }

  const Json &report_, &before_;
  const double seconds_;
};

}  // namespace

void wrap(std::string text, size_t width, std::vector<std::string>& lines) {
  while (text.size() > width) {
    size_t end = text.rfind(' ', width);
    if (end == std::string::npos || end == 0) end = width;
    lines.push_back(text.substr(0, end));
    text.erase(0, text[end] == ' ' ? end + 1 : end);
  }
  lines.push_back(std::move(text));
}

std::vector<std::string> feed_view(const Json& report, const Json& before, double seconds, size_t width) {
  return View(report, before, seconds).lines(width);
}

}  // namespace feedline::tool
