// Opens the data of a feed and makes the plan of the feed, on a rank that reads files.
#pragma once

#include <memory>
#include <optional>

#include "flowgraph/plan/plan.h"
#include "ranks/rank_group.h"
#include "trainer_bridge/setup.h"

namespace feedline {

/// If rows are sent between ranks, reads the tables with `on_device`, from which each rank gathers rows when its
/// batches have arrived. Then compares these tables, and the headers of the other tables, on all ranks. Throws Error if
/// a table cannot be read or takes too much memory, or if the ranks' tables differ.
void open_arriving_tables(Setup& setup, RankGroup& ranks);

/// Opens the tables that are not open yet. Counts the data, together with the other ranks that read. Returns the plan
/// that this rank's graph executes. Throws Error if the data or a table cannot be read, if the ranks' data or tables
/// differ, or if the pipeline does not fit the data.
std::unique_ptr<flow::Plan> open_plan(Setup& setup, RankGroup& readers);

/// Returns the same plan with these weights of its mixture; nullopt means the weights in the pipeline. Returns null if
/// the plan has these weights already, or has no mixture. Throws Error bad_pipeline if the data cannot be mixed in this
/// way.
std::unique_ptr<flow::Plan> with_weights(const flow::Plan& plan, const std::optional<flow::Reweighted>& weights,
                                         const Setup& setup);

/// Returns the plan with the counts that the graph has made during the first epoch. This is for index.mode LAZY.
std::unique_ptr<flow::Plan> counted_plan(const flow::Plan& lazy, const std::vector<io::FileIndex>& counted);

}  // namespace feedline
