// The reports of the other ranks, for the page of rank 0, which asks their monitors for them.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/mutex.h"
#include "trainer_bridge/monitor/http_server.h"

namespace feedline {

/// Returns a message that tells other ranks where this rank's monitor can be found: at `address`, and if that stands
/// for all network interfaces, at the addresses of this machine, as far as the system tells them.
std::string monitor_places(const HttpAddress& address);

/// Returns the addresses in such a message of `rank` at which this rank can find the monitor; none if it is only for
/// its own machine. Throws Error bad_pipeline if it is no such message.
std::vector<HttpAddress> places_in(std::string_view message, int rank);

/// Returns what the page shows of a monitor's report. Throws Json::exception if the document is no report, and Error
/// io_error if it is nested too deep or another rank's.
Json shown_report(std::string_view document, int rank);

class RankReports {
 public:
  /// `places` has the monitor_places() of each rank; an empty text says that a rank has no monitor. `token` is the
  /// password of all of them. Throws std::system_error if there is no thread.
  RankReports(int rank, const std::vector<std::string>& places, std::string token);
  /// Ends the thread, within half a second.
  ~RankReports();
  RankReports(const RankReports&) = delete;
  RankReports& operator=(const RankReports&) = delete;

  /// Returns a list with an object for each other rank: {"rank": r, "address": where its monitor is, or null; "report":
  /// its report, with the keys that the page shows, or null; "trouble": why there is no report, or null}. A thread asks
  /// the monitors in turn, at most once a second, and stops doing that when this has not been called for 5 seconds. The
  /// first call therefore returns no reports. Thread-safe.
  Json json() FEEDLINE_EXCLUDES(mutex_);

 private:
  struct Other {
    int rank;
    std::vector<HttpAddress> places;  // where its monitor may be; the first one is asked next
    Json row;                         // guarded by mutex_
  };

  void run() FEEDLINE_EXCLUDES(mutex_);
  Json ask(Other& other) const;

  const std::string token_;
  std::vector<Other> others_;  // `places` is used only by the thread
  Mutex mutex_;
  Condition wake_;
  bool ending_ FEEDLINE_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point wanted_until_ FEEDLINE_GUARDED_BY(mutex_) = {};
  std::thread thread_;
};

}  // namespace feedline
