// The monitor of a feeder: its report over HTTP, as a page for people, as JSON, and as metrics.
#pragma once

#include <functional>
#include <string>

#include "feedline/report.h"
#include "trainer_bridge/monitor/history.h"
#include "trainer_bridge/monitor/http_server.h"

namespace feedline {

/// What a monitor is made of: see Options::monitor and Options::monitor_token.
struct MonitorOptions {
  std::string address;
  std::string token;
  int rank = 0;  // is added to a port that is not 0, and to the path of a socket
};

class Monitor {
 public:
  /// Listens. Throws Error bad_pipeline if the options make no sense, and io_error if it cannot listen.
  explicit Monitor(const MonitorOptions& options);

  /// Begins to answer, and logs the address. `report` and `plan_text` are called on the monitor's thread until the
  /// monitor is destroyed. Throws Error io_error if there is no thread.
  void serve(std::function<Report()> report, std::function<std::string()> plan_text);

  std::string address() const { return server_.address().text(); }

 private:
  HttpResponse answer(const HttpRequest& request) const;

  const int rank_;
  std::function<Report()> report_;
  std::function<std::string()> plan_text_;
  History history_;
  HttpServer server_;  // destroyed first, because its thread uses the others
};

}  // namespace feedline
