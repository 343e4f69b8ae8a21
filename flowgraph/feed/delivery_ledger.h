// Counts what each replica has been given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "feedline/batch.h"
#include "feedline/counters.h"
#include "flowgraph/batch/epoch_ledger.h"
#include "flowgraph/pipeline/feed_state.h"

namespace feedline::flow {

/// Says what has been delivered since the start.
struct DeliveredReport {
  Counters counters;  // only the members that a DeliveryLedger counts
  uint64_t audit = 0, finished_epochs = 0;
  std::optional<EpochAudit> last_epoch;
  uint64_t parsed = 0;            // EpochEnd::parsed of the last epoch that any replica has finished
  std::vector<uint64_t> lacking;  // EpochEnd::lacking of that epoch
};

/// Counts what replicas are given, and where each of them is. Not thread-safe.
class DeliveryLedger {
 public:
  /// All replicas begin at `start`.
  DeliveryLedger(size_t replicas, const Position& start, EpochLedger epochs);

  /// Adds a batch that the replica was given. `passes` says how its audit (a sum of hashes of its records) is divided
  /// between two passes over the data.
  void add(size_t replica, const BatchContent& batch, const PassAudit& passes);
  /// Ends the replica's epoch.
  void end_epoch(size_t replica, const EpochEnd& end);

  const Position& position(size_t replica) const { return replicas_[replica].position; }
  /// The positions of the slowest replica (`last`) and of the fastest one (`first`).
  struct Positions {
    Position last, first;
  };
  Positions positions() const;

  /// Returns how many batches and ends of epochs the replica has been given.
  uint64_t received(size_t replica) const { return replicas_[replica].received; }
  /// Returns the replica that has been given the smallest number of batches and ends of epochs. If several replicas
  /// have been given that number, returns the first of them.
  size_t slowest() const;

  DeliveredReport report() const;
  /// Returns the sums of the last epoch that all replicas have finished; nullopt if there is none.
  const std::optional<FinishedEpoch>& last_sums() const noexcept { return epochs_.last_sums(); }

 private:
  struct Replica {
    uint64_t received = 0, steps = 0, epochs = 0;
    Position position;
  };

  std::vector<Replica> replicas_;
  EpochLedger epochs_;
  DeliveredReport report_;
};

}  // namespace feedline::flow
