// The facts about a feed that every rank must know, including ranks that read nothing and have no Plan.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flowgraph/pipeline/feed_state.h"
#include "flowgraph/plan/plan.h"

namespace feedline::flow {

/// The facts of a plan that a rank needs to receive, unpack and count its batches, and to save a state of the feed (a
/// checkpoint): which data and pipeline the plan is for, how long an epoch is, and how a batch lies in a buffer. These
/// are plain values, so that the rank that reads can send them to ranks that have no Plan.
struct FeedFacts {
  FeedIdentity identity;
  int64_t samples_per_epoch = 0;  // -1: epochs never end, or their length is not known
  int64_t dropped_per_epoch = 0;
  bool lazy = false;                    // index.mode is LAZY: `identity` is not known yet
  std::vector<std::string> files = {};  // the URIs of the data files
  std::string text;                     // Plan::text()

  // The layout of one of the plan's batches.
  int64_t rows = 0;    // the maximum number of rows, where each frame of a window counts as a row
  int64_t frames = 1;  // the rows of a sample
  uint64_t buffer_bytes = 0;
  std::vector<BatchTensor> tensors = {};
};
FeedFacts facts_of(const Plan& plan);
FeedIdentity identity_of(const Schedule& plan);

/// Returns the facts as a message to other ranks, for feeds whose rows are sent from rank to rank. `lazy` is left out,
/// because such feeds are never lazy.
std::string to_message(const FeedFacts& facts);
/// Returns the facts that the message of a rank holds. Throws Error bad_pipeline unless they can be the facts of a plan
/// of `spec`.
FeedFacts facts_in(std::string_view message, int rank, const PipelineSpec& spec);

}  // namespace feedline::flow
