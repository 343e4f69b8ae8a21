// What the epochs of a feed add up to, against what the indexes say that they hold.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "flowgraph/epoch_sums.h"
#include "flowgraph/rank_audits.h"

namespace feedline::flow {

/// Not thread-safe.
class EpochLedger {
 public:
  /// alone: there is no other rank. others: who adds up the sums of all ranks; null: nobody does.
  EpochLedger(size_t replicas, ExpectedAudit expected, bool alone, std::shared_ptr<RankAudits> others = nullptr);

  void delivered(size_t replica, uint64_t audit) { delivered_[replica] += audit; }
  void ended(size_t replica, const EpochEnd& end);

  /// Of the last epoch that all replicas have finished; none: there is none yet.
  std::optional<EpochAudit> last() const;
  /// Epochs that do not add up.
  uint64_t differing() const;

 private:
  struct Entry : EpochSums {
    size_t replicas = 0;  // that have finished it
  };
  EpochAudit audit(const EpochSums& sums) const;

  const ExpectedAudit expected_;
  const bool alone_;
  const std::shared_ptr<RankAudits> others_;
  std::vector<uint64_t> delivered_;  // by replica: of the epoch that it is in
  std::vector<uint64_t> epochs_;     // by replica: that it has finished
  std::deque<Entry> open_;           // some replica has finished it; the first is number finished_
  uint64_t finished_ = 0;
  std::optional<EpochSums> last_;
  uint64_t differing_ = 0;
};

}  // namespace feedline::flow
