// Asks the monitors of the other ranks for their reports, for the page of rank 0.
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

/// Returns a message that tells other ranks the addresses at which they can reach this rank's monitor. This is
/// `address`; or, if `address` stands for all network interfaces, the network addresses of this machine, as far as the
/// system tells them.
std::string monitor_places(const HttpAddress& address);

/// Returns the addresses at which this rank can reach the monitor of `rank`, from the message that `rank` has sent.
/// Returns an empty list if only the machine of `rank` can reach that monitor, and this rank runs on a different
/// machine. Throws Error bad_pipeline if `message` is not a message of monitor_places().
std::vector<HttpAddress> places_in(std::string_view message, int rank);

/// Returns what the page shows of a monitor's report. Throws Json::exception if the document is not a report. Throws
/// Error io_error if it is nested too deep, or if it is not the report of `rank`.
Json shown_report(std::string_view document, int rank);

class RankReports {
 public:
  /// `places` has the monitor_places() of each rank; an empty text says that a rank has no monitor. `token` is the
  /// password of all monitors. Throws std::system_error if the thread cannot be started.
  RankReports(int rank, const std::vector<std::string>& places, std::string token);
  /// Ends the thread, within half a second.
  ~RankReports();
  RankReports(const RankReports&) = delete;
  RankReports& operator=(const RankReports&) = delete;

  /// Returns a list with an object for each other rank: {"rank": r, "address": the address of its monitor, or null;
  /// "report": its report, with the keys that the page shows, or null; "trouble": why there is no report, or null}. A
  /// thread asks the monitors in turn, at most once a second. It stops asking when json() has not been called for 5
  /// seconds before `now`. The first call of json(), and the first after such a pause, therefore return no reports.
  /// Thread-safe.
  Json json(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) FEEDLINE_EXCLUDES(mutex_);

 private:
  struct Other {
    int rank;
    std::vector<HttpAddress> places;  // addresses that its monitor may have; the first is asked next
    Json row;                         // guarded by mutex_
  };

  void run() FEEDLINE_EXCLUDES(mutex_);
  Json ask(Other& other) const;

  const std::string token_;
  std::vector<Other> others_;  // only the thread reads the elements of `places`, and changes their order
  Mutex mutex_;
  Condition wake_;
  bool ending_ FEEDLINE_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point wanted_until_ FEEDLINE_GUARDED_BY(mutex_) = {};
  std::thread thread_;
};

}  // namespace feedline
