#include "trainer_bridge/monitor/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/parse.h"
#include "base/spans.h"
#include "feedline/counters.h"
#include "feedline/error.h"
#include "gpu/device/gpu_usage.h"
#include "trainer_bridge/monitor/metrics.h"
#include "trainer_bridge/monitor/trace_events.h"
#include "trainer_bridge/page_text.h"

namespace feedline {
namespace {

HttpResponse json_response(std::string body) { return {.type = "application/json", .body = std::move(body)}; }
HttpResponse json_response(const Json& json) { return json_response(json_text(json, -1)); }

HttpAddress address_of(const MonitorOptions& options) {
  HttpAddress address = parse_http_address("options.monitor", options.address);
  if (address.path.empty()) {
    if (!address.ip.is_loopback() && options.token.empty())
      throw Error(Category::bad_pipeline, fmt::format("options.monitor: other machines can reach {}; give the monitor "
                                                      "a token (monitor_token, or FEEDLINE_MONITOR_TOKEN for `feedline "
                                                      "run`), or listen on 127.0.0.1 and use an SSH tunnel",
                                                      options.address));
    const int port = address.ip.port() + (address.ip.port() > 0 ? options.rank : 0);
    if (port > UINT16_MAX)
      throw Error(Category::bad_pipeline,
                  fmt::format("options.monitor: rank {} listens at the given port plus its rank, which is {}, but the "
                              "largest port is 65535; give a smaller port",
                              options.rank, port));
    address.ip.set_port(static_cast<uint16_t>(port));
  } else if (options.rank > 0) {
    address.path += fmt::format(".{}", options.rank);
  }
  return address;
}

/// Returns the page: page.html with the list of counters in it.
std::string page_with_counters() {
  Json counters = Json::array();
  for_each_counter({}, [&](const CounterInfo& info, auto) {
    counters.push_back({{"name", info.name}, {"unit", info.unit}, {"help", info.help}});
  });
  constexpr std::string_view none = "[]</script>";
  std::string text(page_text);
  return text.insert(text.find(none) + 1, counters.dump().substr(1, counters.dump().size() - 2));
}

/// Returns a line of text that says whether the feed is running, and at which epoch and step it is.
HttpResponse health(const Report& report) {
  if (!report.error) return {.body = fmt::format("ok: epoch {}, step {}\n", report.epoch, report.step)};
  std::string line = fmt::format("ended: {}", report.error->what());
  std::ranges::replace(line, '\n', ' ');
  return {.status = 503, .body = line + "\n"};
}

/// Returns the number in a query like "from=12", whose key is "from=". Returns `otherwise` if the query does not begin
/// with the key, and nullopt if an unsigned 64-bit number does not follow the key.
std::optional<uint64_t> number_in(std::string_view query, std::string_view key, uint64_t otherwise) {
  if (!query.starts_with(key)) return otherwise;
  return parse_number<uint64_t>(query.substr(key.size(), query.find('&') - key.size()));
}

/// Returns how much memory the process takes, and for each GPU of the machine how busy it is, its memory and its PCIe
/// link.
Json system_json() {
  Json gpus = Json::array();
  for (const gpu::GpuUsage& gpu : gpu::gpu_usage())
    gpus.push_back({{"name", gpu.name},
                    {"uuid", gpu.uuid},
                    {"busy", gpu.busy ? Json(*gpu.busy) : Json()},
                    {"memory_used", gpu.memory_used},
                    {"memory_bytes", gpu.memory_bytes},
                    {"pcie_generation", gpu.pcie_generation},
                    {"pcie_lanes", gpu.pcie_lanes},
                    {"pcie_most_lanes", gpu.pcie_most_lanes}});
  return {{"own_memory_bytes", own_memory()}, {"gpus", std::move(gpus)}};
}

/// Begins to record what all threads of the process do. The response follows when the time that the request asks for
/// has gone by.
HttpResponse trace(const HttpRequest& request, int rank) {
  constexpr uint64_t usual = 5, most = 60;
  if (request.other_site) return {.status = 403, .body = "a page of a different site may not start a trace\n"};
  const uint64_t seconds = number_in(request.query, "seconds=", usual).value_or(0);
  if (seconds < 1 || seconds > most)
    return {.status = 400, .body = fmt::format("seconds: write a whole number from 1 to {}\n", most)};
  try {
    auto recording = std::make_shared<SpanRecording>();
    return {.later = [recording, rank] { return json_response(trace_document(trace_events(recording->take(), rank))); },
            .wait = std::chrono::seconds(seconds)};
  } catch (const Error& error) {
    return {.status = 503, .body = error.message() + "\n"};
  }
}

}  // namespace

Monitor::Monitor(const MonitorOptions& options) try
    : rank_(options.rank), token_(options.token), server_(address_of(options), options.token) {
} catch (const Error& error) {
  if (error.category() == Category::bad_pipeline) throw;
  throw Error(error.category(), fmt::format("options.monitor: {} (port 0 takes a free port)", error.message()));
}

void Monitor::serve(MonitorSources sources) {
  sources_ = std::move(sources);
  try {
    if (rank_ == 0 && sources_.places.size() > 1)
      ranks_ = std::make_unique<RankReports>(rank_, sources_.places, token_);
    server_.serve([this](const HttpRequest& request) { return answer(request); },
                  [this] { history_.add(sources_.report(), std::chrono::system_clock::now()); });
  } catch (const std::system_error& error) {
    throw Error(Category::io_error, fmt::format("the monitor's thread cannot be started: {}", error.what()));
  }
  log_info(fmt::format("the monitor of the feed is at {}", address().text()));
}

HttpResponse Monitor::answer(const HttpRequest& request) const {
  if (request.path == "/") return {.type = "text/html; charset=utf-8", .body = page_with_counters()};
  if (request.path == "/report.json") return json_response(to_json(sources_.report()));
  if (request.path == "/history.json") {
    const auto from = number_in(request.query, "from=", 0);
    if (!from) return {.status = 400, .body = "from: write a whole number of 0 or more\n"};
    return json_response(history_.json(*from));
  }
  if (request.path == "/ranks.json") return json_response(ranks_ ? ranks_->json() : Json::array());
  if (request.path == "/sample.json") return json_response(sources_.sample());
  if (request.path == "/system.json") return json_response(system_json());
  if (request.path == "/plan.txt") return {.body = sources_.plan_text()};
  if (request.path == "/healthz") return health(sources_.report());
  if (request.path == "/trace") return trace(request, rank_);
  if (request.path == "/metrics") {
    const bool open_metrics = request.accept.find("application/openmetrics-text") != std::string::npos;
    return {.type = open_metrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                 : "text/plain; version=0.0.4; charset=utf-8",
            .body = metrics_text(sources_.report(), open_metrics)};
  }
  return {.status = 404,
          .body =
              "there is no such page; the pages are /, /report.json, /history.json, /ranks.json, /sample.json, "
              "/system.json, /plan.txt, /metrics, /trace and /healthz\n"};
}

}  // namespace feedline
