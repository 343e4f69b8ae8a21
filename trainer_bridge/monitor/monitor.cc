#include "trainer_bridge/monitor/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/spans.h"
#include "feedline/error.h"
#include "trainer_bridge/monitor/metrics.h"
#include "trainer_bridge/monitor/page.h"
#include "trainer_bridge/monitor/trace_events.h"

namespace feedline {
namespace {

constexpr std::string_view json_type = "application/json";

HttpAddress address_of(const MonitorOptions& options) {
  HttpAddress address = parse_http_address("options.monitor", options.address);
  if (address.path.empty()) {
    if (!address.ip.is_loopback() && options.token.empty())
      throw Error(Category::bad_pipeline,
                  fmt::format("options.monitor: other machines can reach {}; set options.monitor_token, or listen on "
                              "127.0.0.1 and use a tunnel of SSH",
                              options.address));
    const int port = address.ip.port() + (address.ip.port() > 0 ? options.rank : 0);
    if (port > UINT16_MAX)
      throw Error(Category::bad_pipeline,
                  fmt::format("options.monitor: rank {} listens at the port plus its rank, and {} is more than 65535",
                              options.rank, port));
    address.ip.set_port(static_cast<uint16_t>(port));
  } else if (options.rank > 0) {
    address.path += fmt::format(".{}", options.rank);
  }
  return address;
}

/// Returns one line: whether the feed goes on, and where it is.
HttpResponse health(const Report& report) {
  if (!report.error) return {.body = fmt::format("ok: epoch {}, step {}\n", report.epoch, report.step)};
  std::string line = fmt::format("ended: {}", report.error->what());
  std::ranges::replace(line, '\n', ' ');
  return {.status = 503, .body = line + "\n"};
}

/// Returns the number in a query like "from=12", whose key is "from="; `otherwise` if there is none.
uint64_t number_in(std::string_view query, std::string_view key, uint64_t otherwise) {
  uint64_t number = otherwise;
  if (query.starts_with(key)) std::from_chars(query.data() + key.size(), query.data() + query.size(), number);
  return number;
}

/// Records all threads of the process from now on.
HttpResponse trace(std::string_view query, int rank) {
  constexpr uint64_t usual = 5, most = 60;
  const uint64_t seconds = number_in(query, "seconds=", usual);
  if (seconds < 1 || seconds > most)
    return {.status = 400, .body = fmt::format("seconds: a trace takes 1 to {} seconds\n", most)};
  try {
    auto recording = std::make_shared<SpanRecording>();
    return {.later =
                [recording, rank] {
                  return HttpResponse{.type = std::string(json_type),
                                      .body = trace_document(trace_events(recording->take(), rank))};
                },
            .wait = std::chrono::seconds(seconds)};
  } catch (const Error& error) {
    return {.status = 503, .body = error.message() + "\n"};
  }
}

}  // namespace

Monitor::Monitor(const MonitorOptions& options) try : rank_(options.rank), server_(address_of(options), options.token) {
} catch (const Error& error) {
  if (error.category() == Category::bad_pipeline) throw;
  throw Error(error.category(),
              fmt::format("options.monitor: {}; is another feed there? Port 0 takes a free one", error.message()));
}

void Monitor::serve(std::function<Report()> report, std::function<std::string()> plan_text) {
  report_ = std::move(report);
  plan_text_ = std::move(plan_text);
  try {
    server_.serve([this](const HttpRequest& request) { return answer(request); },
                  [this] { history_.add(report_(), std::chrono::system_clock::now()); });
  } catch (const std::system_error& error) {
    throw Error(Category::io_error, fmt::format("the monitor's thread cannot be started: {}", error.what()));
  }
  log_info(fmt::format("the monitor of the feed is at {}", address()));
}

HttpResponse Monitor::answer(const HttpRequest& request) const {
  if (request.path == "/") return {.type = "text/html; charset=utf-8", .body = std::string(monitor_page)};
  if (request.path == "/report.json") return {.type = std::string(json_type), .body = to_json(report_())};
  if (request.path == "/history.json")
    return {.type = std::string(json_type), .body = json_text(history_.json(number_in(request.query, "from=", 0)), -1)};
  if (request.path == "/plan.txt") return {.body = plan_text_()};
  if (request.path == "/healthz") return health(report_());
  if (request.path == "/trace") return trace(request.query, rank_);
  if (request.path == "/metrics") {
    const bool open_metrics = request.accept.find("application/openmetrics-text") != std::string::npos;
    return {.type = open_metrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                 : "text/plain; version=0.0.4; charset=utf-8",
            .body = metrics_text(report_(), open_metrics)};
  }
  return {.status = 404,
          .body = "there are /, /report.json, /history.json, /plan.txt, /metrics, /trace and /healthz\n"};
}

}  // namespace feedline
