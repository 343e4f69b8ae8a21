#include "trainer_bridge/monitor/metrics.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/append.h"

namespace feedline {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

/// A value and its label, such as `{stage="read"}`. If `label` is empty, the value has no label.
struct Sample {
  std::string label;
  double value = 0;
};

std::string stage_label(std::string_view name) { return fmt::format("{{stage=\"{}\"}}", escaped(name)); }

class Metrics {
 public:
  explicit Metrics(bool open_metrics) : open_metrics_(open_metrics) {}

  /// Adds a counter, whose samples are called NAME_total. The name ends with the unit, if there is one.
  void counter(std::string_view name, std::string_view unit, std::string_view help,
               const std::vector<Sample>& samples) {
    family(open_metrics_ ? std::string(name) : fmt::format("{}_total", name), "counter", unit, help);
    for (const Sample& at : samples) add("{}_total{} {}\n", name, at.label, at.value);
  }
  void counter(std::string_view name, std::string_view unit, std::string_view help, double value) {
    counter(name, unit, help, {{"", value}});
  }
  void gauge(std::string_view name, std::string_view unit, std::string_view help, const std::vector<Sample>& samples) {
    family(name, "gauge", unit, help);
    for (const Sample& at : samples) add("{}{} {}\n", name, at.label, at.value);
  }
  void gauge(std::string_view name, std::string_view unit, std::string_view help, double value) {
    gauge(name, unit, help, {{"", value}});
  }
  /// Adds a histogram of seconds from buckets in microseconds, each with its upper bound.
  void histogram(std::string_view name, std::string_view help,
                 const std::vector<std::pair<double, uint64_t>>& buckets) {
    family(name, "histogram", "seconds", help);
    constexpr std::array bounds_us = {1.0, 2.5, 5.0,   10.0, 25.0, 50.0,  100.0, 250.0, 500.0, 1e3, 2.5e3,
                                      5e3, 1e4, 2.5e4, 5e4,  1e5,  2.5e5, 5e5,   1e6,   2.5e6, 5e6, 1e7};
    uint64_t below = 0;
    size_t next = 0;
    for (const double bound : bounds_us) {
      for (; next < buckets.size() && buckets[next].first <= bound; next++) below += buckets[next].second;
      std::string seconds = fmt::format("{}", bound / 1e6);
      if (seconds.find_first_of(".e") == std::string::npos) seconds += ".0";  // as OpenMetrics writes numbers here
      add("{}_bucket{{le=\"{}\"}} {}\n", name, seconds, below);
    }
    for (; next < buckets.size(); next++) below += buckets[next].second;
    add("{}_bucket{{le=\"+Inf\"}} {}\n", name, below);
    add("{}_count {}\n", name, below);
  }

  std::string text() && { return std::move(text_) + (open_metrics_ ? "# EOF\n" : ""); }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    append(text_, format, std::forward<Args>(args)...);
  }
  void family(std::string_view name, std::string_view type, std::string_view unit, std::string_view help) {
    add("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    if (open_metrics_ && !unit.empty()) add("# UNIT {} {}\n", name, unit);
  }

  const bool open_metrics_;
  std::string text_;
};

}  // namespace

std::string metrics_text(const Report& report, bool open_metrics) {
  Metrics to(open_metrics);
  to.gauge("feedline_build_info", "", "The version of feedline.",
           {{fmt::format("{{version=\"{}\"}}", FEEDLINE_VERSION), 1}});
  to.gauge("feedline_failed", "", "1 if the feed has ended with an error or was stopped, else 0.",
           report.error ? 1 : 0);
  for_each_counter(report, [&](const CounterInfo& info, auto value) {
    if (value < 0) return;  // the value is not known yet
    const std::string name = fmt::format("feedline_{}", info.name);
    if (info.grows)
      to.counter(name, info.unit, info.help, static_cast<double>(value));
    else
      to.gauge(name, info.unit, info.help, static_cast<double>(value));
  });
  std::vector<Sample> waited, busy, no_room, messages, queue;
  for (const auto& [stage, seconds] : report.waited_s) waited.push_back({stage_label(stage), seconds});
  for (const StageReport& stage : report.stages) {
    const std::string label = stage_label(stage.name);
    busy.push_back({label, stage.busy_s});
    no_room.push_back({label, stage.wait_s});
    messages.push_back({label, static_cast<double>(stage.messages)});
    queue.push_back({label, static_cast<double>(stage.queue)});
  }
  to.counter("feedline_next_wait_seconds", "seconds", "How long next() has waited, by the stage that it waited for.",
             waited);
  to.histogram("feedline_next_duration_seconds", "How long next() took, without each replica's first call.",
               report.next_us.histogram);
  to.counter("feedline_stage_busy_seconds", "seconds", "The time that all threads have spent in a stage.", busy);
  to.counter("feedline_stage_no_room_seconds", "seconds", "How long a stage had work, but no free memory for the work.",
             no_room);
  to.counter("feedline_stage_messages", "", "Pieces of work that a stage was given.", messages);
  to.gauge("feedline_stage_queue", "", "Pieces of work in a stage, or finished batches that wait for next().", queue);
  return std::move(to).text();
}

}  // namespace feedline
