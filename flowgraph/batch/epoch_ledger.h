// Adds up the audits of what the epochs of a feed delivered, and compares them with the audits that the indexes expect.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "flowgraph/plan/epoch_sums.h"

namespace feedline::flow {

/// The audits (base/audit.h) of the epochs of a feed. Not thread-safe.
class EpochLedger {
 public:
  /// `alone`: there is no other rank. `begins_within`: the feed does not begin with the first step of the first epoch.
  EpochLedger(size_t replicas, ExpectedAudit expected, bool alone, bool begins_within = false);

  /// The audits of a batch: of its good samples, and of the samples whose rows failed while it was written.
  struct Sums {
    uint64_t good = 0, bad = 0;
  };
  /// Adds a batch that the replica was given. `of` says how its audit is divided between two passes over the data.
  void delivered(size_t replica, const Sums& batch, const PassAudit& of = {}) {
    delivered_[replica].good += batch.good;
    delivered_[replica].bad += batch.bad;
    if (expected_.passes) add_to_passes(batch.good + batch.bad, of);
  }
  /// Ends the replica's epoch. The last replica's call judges the epoch.
  void ended(size_t replica, const EpochEnd& end);

  /// Returns the audit of the last epoch that all replicas have finished; nullopt if there is no such epoch yet.
  std::optional<EpochAudit> last() const;
  /// Returns the sums of the epoch that last() judges.
  const std::optional<FinishedEpoch>& last_sums() const noexcept { return last_; }
  /// Returns how many epochs did not have the audit that the indexes expect.
  uint64_t differing() const noexcept { return differing_; }

 private:
  struct Entry : EpochSums {
    size_t replicas = 0;          // how many replicas have finished the epoch
    uint64_t bad_in_batches = 0;  // the audit of the samples whose rows failed while batches were written
  };
  EpochAudit audit(const FinishedEpoch& finished) const;
  void add_to_passes(uint64_t audit, const PassAudit& of);
  FinishedEpoch passes_ended_in(const EpochEnd& end);

  const ExpectedAudit expected_;
  const bool alone_;
  std::vector<Sums> delivered_;   // by replica: the audits of its current epoch so far
  std::vector<uint64_t> epochs_;  // by replica: how many epochs it has finished
  std::deque<Entry> open_;        // the epochs that some replicas have finished and others have not, in order
  uint64_t finished_ = 0;         // how many epochs all replicas have finished
  std::optional<FinishedEpoch> last_;
  std::map<uint64_t, uint64_t> passes_;  // for each pass that has not ended: the audit of its rows delivered so far
  // The first pass over the data that is delivered as a whole, so that its audit can be compared with the audit that
  // the index has. In earlier passes some records may not have been delivered, or may have been bad. Empty before the
  // first batch.
  std::optional<uint64_t> first_whole_;
  bool begins_within_;
  uint64_t differing_ = 0;
};

}  // namespace feedline::flow
