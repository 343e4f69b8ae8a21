// The metrics of a report, in both formats.
#include "trainer_bridge/monitor/metrics.h"

#include <fstream>
#include <iterator>
#include <string>

#include "support/catch.h"

using namespace feedline;
using Catch::Contains;

namespace {

Report some_report() {
  Report report;
  report.records = 12345678901;
  report.read_bytes = 4096;
  report.epoch_steps = 10;
  report.waited_s = {{"read", 1.5}, {"another replica", 0.25}};
  report.stages = {{.name = "read", .busy_s = 2, .wait_s = 0.5, .messages = 7, .queue = 3},
                   {.name = "unpack \"0\"", .busy_s = 1, .wait_s = 0, .messages = 2, .queue = 0}};
  report.next_us.histogram = {{0.9, 4}, {1.0, 1}, {30, 2}, {2e7, 1}};
  return report;
}

}  // namespace

TEST_CASE("metrics in OpenMetrics") {
  const std::string text = metrics_text(some_report(), true);
  CHECK_THAT(text, Contains("# HELP feedline_records Samples that were delivered, without filler.\n"
                            "# TYPE feedline_records counter\nfeedline_records_total 12345678901\n") &&
                       Contains("# TYPE feedline_read_bytes counter\n# UNIT feedline_read_bytes bytes\n"
                                "feedline_read_bytes_total 4096\n") &&
                       Contains("feedline_next_wait_seconds_total{stage=\"read\"} 1.5\n"
                                "feedline_next_wait_seconds_total{stage=\"another replica\"} 0.25\n") &&
                       Contains("feedline_stage_queue{stage=\"read\"} 3\n"
                                "feedline_stage_queue{stage=\"unpack \\\"0\\\"\"} 0\n") &&
                       Contains("# UNIT feedline_next_duration_seconds seconds\n"
                                "feedline_next_duration_seconds_bucket{le=\"1e-06\"} 5\n") &&
                       Contains("{le=\"2.5e-05\"} 5\n") && Contains("{le=\"5e-05\"} 7\n") &&
                       Contains("{le=\"10.0\"} 7\n") && Contains("{le=\"+Inf\"} 8\n") &&
                       Contains("feedline_epoch_steps 10\n") && Contains("feedline_cache_hits_total 0\n"));
  CHECK(text.ends_with("\n# EOF\n"));
}

TEST_CASE("metrics in Prometheus's text format") {
  Report report = some_report();
  report.cache_hits = 5;
  report.cache_misses = 6;
  report.cache_bytes = 8;
  report.error = Error(Category::io_error, "gone");
  report.epoch_steps = -1;
  const std::string text = metrics_text(report, false);
  CHECK_THAT(text, Contains("# TYPE feedline_records_total counter\nfeedline_records_total 12345678901\n") &&
                       Contains("feedline_cache_hits_total 5\n") && Contains("feedline_cache_misses_total 6\n") &&
                       Contains("feedline_cache_bytes 8\n") && Contains("feedline_failed 1\n") && !Contains("# UNIT") &&
                       !Contains("# EOF") && !Contains("epoch_steps"));
}

TEST_CASE("each counter of the report is a metric, and in the table of docs/monitor.md") {
  const std::string text = metrics_text(some_report(), true);
  std::ifstream file(FEEDLINE_ROOT "/docs/monitor.md");
  const std::string document(std::istreambuf_iterator<char>(file), {});
  for_each_counter(some_report(), [&](const CounterInfo& info, auto) {
    INFO(info.name);
    CHECK(document.find(std::string("| `") + info.name + "` | `feedline_" + info.name + (info.grows ? "_total" : "") +
                        "` | " + info.help + " |\n") != std::string::npos);
    const std::string name = std::string("feedline_") + info.name;
    CHECK(text.find("# HELP " + name + " " + info.help + "\n# TYPE " + name +
                    (info.grows ? " counter\n" : " gauge\n")) != std::string::npos);
    if (*info.unit) CHECK(name.ends_with(std::string("_") + info.unit));
    CHECK(std::string_view(info.help).ends_with("."));
  });
}
