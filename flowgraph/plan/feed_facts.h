// What every rank of a feed has to know of it, also one that reads nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flowgraph/pipeline/feed_state.h"
#include "flowgraph/plan/plan.h"

namespace feedline::flow {

struct FeedFacts {
  FeedIdentity identity;
  int64_t samples_per_epoch = 0;  // -1: without end, or not known
  int64_t dropped_per_epoch = 0;
  bool lazy = false;  // it has no identity yet
  std::vector<std::string> files = {};
  std::string text;  // Plan::text()

  // Of a batch of the plan.
  int64_t rows = 0;  // at most, frames counted one by one
  int64_t frames = 1;
  uint64_t buffer_bytes = 0;
  std::vector<BatchTensor> tensors = {};
};
FeedFacts facts_of(const Plan& plan);
FeedIdentity identity_of(const Plan& plan);

/// As ranks tell it, where rows travel; LAZY is not there.
std::string to_message(const FeedFacts& facts);
FeedFacts facts_in(std::string_view message);

}  // namespace feedline::flow
