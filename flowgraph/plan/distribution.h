// Who reads for whom, where the replicas of several ranks share a feed. Arithmetic, the same on all ranks.
#pragma once

#include <vector>

#include "flowgraph/order/steps.h"

namespace feedline::flow {

/// pipeline.proto's: each rank reads its own; all are given the same rows; or each its own, which rank 0 reads.
enum class DistributeMode : uint8_t { split, replicate, scatter };

struct Distribution {
  DistributeMode mode = DistributeMode::split;
  int rank = 0;                                // of the communicator
  int replicas = 1;                            // of each rank
  int data_parallel_size = 1;                  // parts that a global batch is split into, among ranks
  std::vector<int> data_parallel_ranks = {0};  // by rank: which of these parts it is given

  /// Throws Error bad_pipeline for parts that there are not and, where all ranks have said theirs, for one that nobody
  /// is given.
  void check(bool all_known) const;

  int ranks() const noexcept { return static_cast<int>(data_parallel_ranks.size()); }
  /// Packed rows travel, if only from one replica to another.
  bool transfers() const noexcept { return mode != DistributeMode::split; }

  /// split: each for itself. replicate: the first rank that is given this part. scatter: rank 0.
  int reader_of(int of_rank) const noexcept;
  bool reads(int of_rank) const noexcept { return reader_of(of_rank) == of_rank; }
  std::vector<int> readers() const;

  /// Which rows this rank's graph makes batches of. Where rows travel its replicas are the parts that travel.
  Ranks planned() const noexcept;
  /// Which of its reader's parts come to a rank: one for each of its replicas, or one for all.
  std::vector<int> parts_of(int of_rank) const;
  /// All ranks are given the same rows by one reader.
  bool one_part() const noexcept { return mode == DistributeMode::replicate && data_parallel_size == 1; }
};

}  // namespace feedline::flow
