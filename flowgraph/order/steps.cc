#include "flowgraph/order/steps.h"

#include <algorithm>

#include "flowgraph/order/lanes.h"

namespace feedline::flow {

Steps::Steps(const Epoch& epoch, int64_t global_batch, LastBatchPolicy policy, uint32_t lanes, bool picks_rows,
             const Ranks& ranks)
    : global_batch_(global_batch),
      policy_(policy),
      ranks_(ranks),
      lanes_(lanes),
      epochs_go_on_(epoch.steps > 0),
      picks_rows_(picks_rows) {
  if (epoch.steps > 0) {
    full_ = epoch.steps;
  } else if (epoch.samples >= 0) {
    full_ = epoch.samples / global_batch;
    remainder_ = epoch.samples % global_batch;
  }
  of_rank_[static_cast<size_t>(Kind::full)] = hull(Kind::full);
  if (remainder_ == 0) return;
  of_rank_[static_cast<size_t>(Kind::last)] = with_a_sample(Kind::last, hull(Kind::last));
  of_rank_[static_cast<size_t>(Kind::dropped)] = {remainder_ * ranks.rank / ranks.world_size,
                                                  remainder_ * (ranks.rank + 1) / ranks.world_size};
}

int64_t Steps::per_epoch() const noexcept {
  return full_ < 0 ? -1 : full_ + (remainder_ > 0 && policy_ != LastBatchPolicy::drop ? 1 : 0);
}

Steps::Kind Steps::kind(int64_t step) const noexcept {
  if (full_ < 0 || step < full_ || epochs_go_on_) return Kind::full;
  return policy_ == LastBatchPolicy::drop ? Kind::dropped : Kind::last;
}

Rows Steps::of_replica(Kind kind, int replica_of_rank) const noexcept {
  const int64_t all = ranks_.all_replicas(), replica = int64_t{ranks_.rank} * ranks_.replicas + replica_of_rank;
  if (kind == Kind::full || policy_ == LastBatchPolicy::pad) {
    const int64_t each = global_batch_ / all;
    return {replica * each, (replica + 1) * each};
  }
  const int64_t each = remainder_ / all, more = remainder_ % all;
  const int64_t first = replica * each + std::min(replica, more);
  return {first, first + each + (replica < more ? 1 : 0)};
}

Rows Steps::hull(Kind kind) const noexcept {
  return {of_replica(kind, 0).first, of_replica(kind, ranks_.replicas - 1).last};
}

// Returns `rows` without the rows after the last sample. If none of the rows has a sample, returns one row that has a
// sample, because the rank copies a sample into its rows without one: the last row with a sample before `rows`, or if
// there is none the first after `rows`.
Rows Steps::with_a_sample(Kind kind, Rows rows) const noexcept {
  int64_t before = -1, after = -1, last = 0;
  bool has_one = false;
  for (uint32_t l = 0; l < lanes_; l++) {
    const LaneRows lane = of_lane(kind, l);
    if (lane.count == 0) continue;
    last = lane.first + lane.count;
    if (lane.first < rows.last && last > rows.first)
      has_one = true;
    else if (lane.first < rows.first)
      before = last - 1;
    else if (after < 0)
      after = lane.first;
  }
  if (has_one) return {rows.first, std::min(rows.last, last)};
  return before >= 0 ? Rows{before, before + 1} : Rows{after, after + 1};
}

// The samples of an epoch are dealt to the lanes in turn, including those that remain after the full steps.
Steps::LaneRows Steps::of_lane(Kind kind, uint32_t lane) const noexcept {
  if (kind == Kind::full) return {lane * lane_step(), lane_step()};
  const auto count = static_cast<int64_t>(dealt(0, static_cast<uint64_t>(remainder_), lane, lanes_));
  if (kind == Kind::last && policy_ == LastBatchPolicy::pad) return {lane * lane_step(), count};
  return {lane * (remainder_ / lanes_) + std::min<int64_t>(lane, remainder_ % lanes_), count};
}

}  // namespace feedline::flow
