// What the epochs of a feed add up to, against what the indexes say that they hold.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "flowgraph/plan/epoch_sums.h"

namespace feedline::flow {

/// Not thread-safe.
class EpochLedger {
 public:
  /// alone: there is no other rank. begins_within: the feed does not begin with the first step of the first epoch.
  EpochLedger(size_t replicas, ExpectedAudit expected, bool alone, bool begins_within = false);

  void delivered(size_t replica, uint64_t audit, const PassAudit& of = {}) {
    delivered_[replica] += audit;
    if (expected_.passes) add_to_passes(audit, of);
  }
  void ended(size_t replica, const EpochEnd& end);

  /// Of the last epoch that all replicas have finished; none: there is none yet.
  std::optional<EpochAudit> last() const;
  /// The sums of that epoch.
  const std::optional<FinishedEpoch>& last_sums() const noexcept { return last_; }
  /// Epochs that do not add up.
  uint64_t differing() const noexcept { return differing_; }

 private:
  struct Entry : EpochSums {
    size_t replicas = 0;  // that have finished it
  };
  EpochAudit audit(const FinishedEpoch& finished) const;
  void add_to_passes(uint64_t audit, const PassAudit& of);
  FinishedEpoch passes_ended_in(const EpochEnd& end);

  const ExpectedAudit expected_;
  const bool alone_;
  std::vector<uint64_t> delivered_;  // by replica: of the epoch that it is in
  std::vector<uint64_t> epochs_;     // by replica: that it has finished
  std::deque<Entry> open_;           // some replica has finished it; the first is number finished_
  uint64_t finished_ = 0;
  std::optional<FinishedEpoch> last_;
  std::map<uint64_t, uint64_t> passes_;  // what has been delivered of each that has not ended
  std::optional<uint64_t> first_whole_;  // pass: of those before it some was not fed, or was bad; none: not known yet
  bool begins_within_;
  uint64_t differing_ = 0;
};

}  // namespace feedline::flow
