// The audits of ranks that read for themselves, added up.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "feedline/communicator.h"
#include "flowgraph/epoch_sums.h"

namespace feedline::flow {

/// Gathers the sums of each epoch from all ranks, on a thread of its own: no next() waits for another rank's. All ranks
/// have one, and end the same epochs in the same order; where they do not, or a rank is lost, epochs stay open.
/// Thread-safe.
class RankAudits {
 public:
  /// The communicator is used by nobody else, less its failure() and abort(). parts: of each rank, which part of the
  /// batches it is given; of ranks with the same part one counts. Throws Error io_error where no thread can be had.
  RankAudits(std::shared_ptr<Communicator> communicator, std::vector<int> parts);
  /// Does not wait for ranks that have not come to an epoch's end: then the thread lives on with the communicator until
  /// they have, or are lost.
  ~RankAudits();
  RankAudits(const RankAudits&) = delete;
  RankAudits& operator=(const RankAudits&) = delete;

  /// What this rank's epoch comes to. Does not wait.
  void add(const EpochSums& mine, const ExpectedAudit& expected);

  /// Of all ranks together; none: not all have ended the epoch.
  std::optional<EpochAudit> of_epoch(uint64_t epoch) const;
  /// Whether a rank was lost, or has left: no more epochs are added up.
  bool lost() const;
  /// Epochs that do not add up.
  uint64_t differing() const;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace feedline::flow
