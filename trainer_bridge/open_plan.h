// Opens the data of a feed and plans it, on a rank that reads.
#pragma once

#include <memory>
#include <optional>

#include "flowgraph/plan/plan.h"
#include "ranks/rank_group.h"
#include "trainer_bridge/setup.h"

namespace feedline {

/// Counts the data, together with the other ranks that read, and makes the plan of what this rank's graph carries out.
/// Throws Error if the data cannot be read, if the ranks' data differ, or if the pipeline does not fit the data.
std::unique_ptr<flow::Plan> open_plan(const Setup& setup, RankGroup& readers);

/// Returns the same plan with these weights of its mixture (nullopt: those of the pipeline); null if the plan has them
/// already. Throws Error bad_pipeline if the data cannot be mixed in this way.
std::unique_ptr<flow::Plan> with_weights(const flow::Plan& plan, const std::optional<flow::Reweighted>& weights,
                                         const Setup& setup);

/// index.mode LAZY: returns the plan with the counts of the first epoch, which the graph has made.
std::unique_ptr<flow::Plan> counted_plan(const flow::Plan& lazy, const std::vector<io::FileIndex>& counted);

}  // namespace feedline
