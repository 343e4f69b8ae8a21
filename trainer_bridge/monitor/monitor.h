// The monitor of a feeder: serves its report over HTTP, as a page for people, as JSON, and as metrics.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "feedline/report.h"
#include "trainer_bridge/monitor/history.h"
#include "trainer_bridge/monitor/http_server.h"
#include "trainer_bridge/monitor/rank_reports.h"

namespace feedline {

/// The options of a monitor. For `address` and `token` see Options::monitor and Options::monitor_token.
struct MonitorOptions {
  std::string address;
  std::string token;
  int rank = 0;  // is added to a port that is not 0, and appended to the path of a socket
};

/// The sources of all that a monitor shows. Their functions are called on the monitor's thread.
struct MonitorSources {
  std::function<Report()> report;
  std::function<std::string()> plan_text;
  std::function<Json()> sample;  // what is being fed (trainer_bridge/batch_sample.h)
  /// For each rank, the addresses of its monitor, as monitor_places() returns them. Empty if they are not known, or if
  /// there is only one rank.
  std::vector<std::string> places = {};
};

class Monitor {
 public:
  /// Listens. Throws Error bad_pipeline if the options make no sense, and io_error if it cannot listen.
  explicit Monitor(const MonitorOptions& options);

  /// Begins to answer, and logs the address. The sources are used until the monitor is destroyed. Throws Error io_error
  /// if a thread cannot be started.
  void serve(MonitorSources sources);

  const HttpAddress& address() const { return server_.address(); }

 private:
  HttpResponse answer(const HttpRequest& request) const;

  const int rank_;
  const std::string token_;
  MonitorSources sources_;
  History history_;
  std::unique_ptr<RankReports> ranks_;  // null: this is not rank 0, or the other ranks' addresses are not known
  HttpServer server_;                   // destroyed first, because its thread uses the other members
};

}  // namespace feedline
