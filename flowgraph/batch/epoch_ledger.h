// Adds up what the epochs of a feed delivered, and compares it with what they hold according to the indexes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "flowgraph/plan/epoch_sums.h"

namespace feedline::flow {

/// The audits of the epochs of a feed. Not thread-safe.
class EpochLedger {
 public:
  /// `alone`: there is no other rank. `begins_within`: the feed does not begin with the first step of the first epoch.
  EpochLedger(size_t replicas, ExpectedAudit expected, bool alone, bool begins_within = false);

  /// The audits of a batch: of its samples, and of those that proved bad while it was made.
  struct Sums {
    uint64_t good = 0, bad = 0;
  };
  void delivered(size_t replica, const Sums& batch, const PassAudit& of = {}) {
    delivered_[replica].good += batch.good;
    delivered_[replica].bad += batch.bad;
    if (expected_.passes) add_to_passes(batch.good + batch.bad, of);
  }
  void ended(size_t replica, const EpochEnd& end);

  /// Returns the audit of the last epoch that all replicas have finished; none if there is none yet.
  std::optional<EpochAudit> last() const;
  /// Returns the sums of that epoch.
  const std::optional<FinishedEpoch>& last_sums() const noexcept { return last_; }
  /// Returns how many epochs do not add up.
  uint64_t differing() const noexcept { return differing_; }

 private:
  struct Entry : EpochSums {
    size_t replicas = 0;          // how many replicas have finished it
    uint64_t bad_in_batches = 0;  // the audit of the samples that proved bad while batches were made
  };
  EpochAudit audit(const FinishedEpoch& finished) const;
  void add_to_passes(uint64_t audit, const PassAudit& of);
  FinishedEpoch passes_ended_in(const EpochEnd& end);

  const ExpectedAudit expected_;
  const bool alone_;
  std::vector<Sums> delivered_;   // by replica: what it was given of the epoch that it is in
  std::vector<uint64_t> epochs_;  // by replica: how many epochs it has finished
  std::deque<Entry> open_;        // those that some replica has finished; the first has the number finished_
  uint64_t finished_ = 0;
  std::optional<FinishedEpoch> last_;
  std::map<uint64_t, uint64_t> passes_;  // what has been delivered of each pass that has not ended
  // The first pass over the data that was delivered as a whole, so that its audit can be compared with that of the index.
  // In each earlier pass some records were not delivered, or were bad. Empty while it is not known yet.
  std::optional<uint64_t> first_whole_;
  bool begins_within_;
  uint64_t differing_ = 0;
};

}  // namespace feedline::flow
