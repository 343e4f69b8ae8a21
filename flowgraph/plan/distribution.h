// Says which rank reads for which other ranks, if the replicas of several ranks share a feed. Pure arithmetic, with the
// same result on all ranks.
#pragma once

#include <vector>

#include "flowgraph/order/steps.h"

namespace feedline::flow {

/// Distribute::Mode of pipeline.proto.
enum class DistributeMode : uint8_t {
  split,      // each rank reads its own rows
  replicate,  // all ranks that are given the same part of the batch get the same rows, which one of these ranks reads
  scatter     // each rank is given rows of its own, and rank 0 reads all rows
};

/// Says how the rows of a global batch get to the ranks.
struct Distribution {
  DistributeMode mode = DistributeMode::split;
  int rank = 0;                                // this rank's number in the communicator
  int replicas = 1;                            // the number of replicas on each rank
  int data_parallel_size = 1;                  // the number of parts into which a global batch is split among ranks
  std::vector<int> data_parallel_ranks = {0};  // for each rank: the number of the part that it is given

  /// Throws Error bad_pipeline if a rank is given a part that does not exist. `all_known` says that every rank's part
  /// is known. Then a part that no rank is given is an error, too.
  void check(bool all_known) const;

  int ranks() const noexcept { return static_cast<int>(data_parallel_ranks.size()); }
  /// Returns whether a reader sends packed rows (flowgraph/batch/packing.h), even if only to replicas of its own rank.
  bool transfers() const noexcept { return mode != DistributeMode::split; }

  /// Returns the rank that reads for `of_rank`. split: the rank itself. replicate: the first rank that is given the
  /// same part. scatter: rank 0.
  int reader_of(int of_rank) const noexcept;
  bool reads(int of_rank) const noexcept { return reader_of(of_rank) == of_rank; }
  std::vector<int> readers() const;

  /// Returns the ranks and replicas for which this rank's Plan is made. They decide from which rows its graph makes
  /// batches. If rows are sent from rank to rank, each replica of the result stands for one part of a batch that the
  /// graph makes and sends.
  Ranks planned() const noexcept;
  /// Returns the numbers of the reader's parts that a rank is given: one for each of its replicas (scatter), or one for
  /// all its replicas.
  std::vector<int> parts_of(int of_rank) const;
  /// Returns whether one reader gives all ranks the same rows.
  bool one_part() const noexcept { return mode == DistributeMode::replicate && data_parallel_size == 1; }
};

}  // namespace feedline::flow
