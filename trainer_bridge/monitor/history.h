// Keeps what the feed has done in each of the last 600 seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/json.h"
#include "feedline/report.h"

namespace feedline {

class History {
 public:
  static constexpr size_t kept = 600;  // intervals, of about a second each

  /// Adds the interval from the previous report to this one. The first report only begins the first interval. If the
  /// feeder was set to another position meanwhile, its counters began again at 0, and the interval has only what they
  /// have counted since then.
  void add(const Report& report, std::chrono::system_clock::time_point now);

  /// Returns {"next": N, "rows": [[...], ...]}. The rows are the intervals that are kept, from number `from` on; N is
  /// the number that the next interval will have. A row is: the end of the interval, as seconds since 1970; its length
  /// in seconds; samples, steps and bytes read in it; the share of its time that the trainer waited; the share of
  /// next() calls that found their batch ready; p50 and p99 of next() in microseconds. The last three values are null
  /// if next() was not called.
  Json json(uint64_t from) const;

 private:
  struct Totals {
    double time = 0;  // seconds since 1970
    uint64_t records = 0, steps = 0, read_bytes = 0, calls = 0;
    double waited_s = 0, ready = 0;
    std::vector<std::pair<double, uint64_t>> histogram;
  };
  std::deque<Json> rows_;
  uint64_t next_ = 0;  // the number of the next row
  bool begun_ = false;
  Totals before_;
};

}  // namespace feedline
