#include "trainer_bridge/monitor/history.h"

#include <algorithm>
#include <map>

namespace feedline {
namespace {

using Buckets = std::vector<std::pair<double, uint64_t>>;

/// Returns the buckets of those calls that are in `now` but not in `before`. The bound of the last bucket is the time
/// of the longest call, so it may have changed since `before`. Then `now` has the calls of that bucket under a
/// different bound.
Buckets difference(const Buckets& now, const Buckets& before) {
  std::map<double, uint64_t> old(before.begin(), before.end());
  uint64_t moved = 0;
  if (!before.empty() && std::ranges::find(now, before.back().first, &Buckets::value_type::first) == now.end())
    moved = before.back().second;
  Buckets fresh;
  for (const auto& [bound, calls] : now) {
    uint64_t seen = old.contains(bound) ? old[bound] : 0;
    if (moved > 0 && bound > before.back().first) seen += std::exchange(moved, 0);
    fresh.emplace_back(bound, calls - std::min(seen, calls));
  }
  return fresh;
}

/// Returns the quantile `q` of the calls: the bound of the bucket in which it lies.
double quantile(const Buckets& buckets, uint64_t calls, double q) {
  const auto wanted = static_cast<uint64_t>(q * static_cast<double>(calls));
  uint64_t seen = 0;
  for (const auto& [bound, count] : buckets) {
    seen += count;
    if (seen > wanted) return bound;
  }
  return 0;
}

}  // namespace

void History::add(const Report& report, std::chrono::system_clock::time_point now) {
  Totals totals{.time = std::chrono::duration<double>(now.time_since_epoch()).count(),
                .records = report.records,
                .steps = report.steps,
                .read_bytes = report.read_bytes,
                .waited_s = report.next_wait_ratio * report.wall_s,
                .histogram = report.next_us.histogram};
  for (const auto& [bound, calls] : totals.histogram) totals.calls += calls;
  totals.ready = report.data_readiness_ratio * static_cast<double>(totals.calls);
  const Totals before = std::exchange(before_, totals);
  if (!std::exchange(begun_, true)) return;
  const bool anew = totals.records < before.records || totals.steps < before.steps ||
                    totals.read_bytes < before.read_bytes || totals.calls < before.calls;
  Totals from;
  if (!anew) from = before;
  from.time = before.time;
  const double seconds = totals.time - from.time;
  const uint64_t calls = totals.calls - from.calls;
  Json row = {totals.time,
              seconds,
              totals.records - from.records,
              totals.steps - from.steps,
              totals.read_bytes - from.read_bytes,
              seconds > 0 ? std::clamp((totals.waited_s - from.waited_s) / seconds, 0.0, 1.0) : 0};
  if (calls == 0) {
    row.insert(row.end(), {nullptr, nullptr, nullptr});
  } else {
    const Buckets fresh = difference(totals.histogram, from.histogram);
    row.push_back(std::clamp((totals.ready - from.ready) / static_cast<double>(calls), 0.0, 1.0));
    row.push_back(quantile(fresh, calls, 0.5));
    row.push_back(quantile(fresh, calls, 0.99));
  }
  rows_.push_back(std::move(row));
  next_++;
  if (rows_.size() > kept) rows_.pop_front();
}

Json History::json(uint64_t from) const {
  const uint64_t first = next_ - rows_.size();
  Json rows = Json::array();
  for (uint64_t number = std::max(from, first); number < next_; number++)
    rows.push_back(rows_[static_cast<size_t>(number - first)]);
  return {{"next", next_}, {"rows", std::move(rows)}};
}

}  // namespace feedline
