// Adds up the audits (base/audit.h) of several ranks, each of which reads its own part of the data.
#pragma once

#include <optional>
#include <vector>

#include "feedline/exchange.h"
#include "flowgraph/plan/epoch_sums.h"

namespace feedline::flow {

/// Judges the sums of all ranks together. All ranks must call it. `parts` says for each rank which part of the batches
/// it is given; ranks that are given the same part count once. `mine` is the epoch that this rank has finished last, if
/// it has finished any. Returns nullopt if this rank has finished no epoch. If ranks have finished different epochs
/// last, or expect different sums, the verdict is open and `why` says so. Throws what the exchange throws.
std::optional<EpochAudit> judge_together(const Exchange& exchange, const std::vector<int>& parts,
                                         const std::optional<FinishedEpoch>& mine);

}  // namespace feedline::flow
