// The audits of ranks that read for themselves, added up.
#pragma once

#include <vector>

#include "feedline/communicator.h"
#include "flowgraph/epoch_sums.h"

namespace feedline::flow {

/// Judges the sums of all ranks together; all of them call it. parts: of each rank, which part of the batches it is
/// given; of ranks with the same part one counts. Ranks that have ended different epochs are told so: the verdict is
/// open then. Throws what the communicator throws.
EpochAudit judge_together(Communicator& communicator, const std::vector<int>& parts, const FinishedEpoch& mine);

}  // namespace feedline::flow
