// Where a feed stands, as text that is kept and given back: what a trainer has received, of which data and pipeline.
//
//   {"feedline_state":1,"epoch":3,"step":1200,"data":"0123456789abcdef","pipeline":"0123456789abcdef..."}
//
// data: DataSet::digest. pipeline: 8 hexadecimal digits for each of `state_stages`, all that decides which samples a
// step has. At most 256 bytes. Nothing in it depends on rank, world size, replicas, threads or what was prefetched.
//
// Where the weights of a mixture were changed there are "since", the epoch from which on they hold, and "mixture": for
// each source 6 hexadecimal digits of its weight and 10 of what each lane had taken of it then. Where that is 2^40
// samples or more "feedline_state" is 2, and there are 16 digits of it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/error.h"

namespace feedline::config {
class Pipeline;
}

namespace feedline::flow {

/// So many steps of an epoch have been received; all of the epochs before it.
struct Position {
  uint64_t epoch = 0;
  int64_t step = 0;
  auto operator<=>(const Position&) const = default;
};
/// What has ended the feed, with the step that it was at.
Error in_step(const Position& position, const Error& why);

/// Weights of a mixture that are not those of the pipeline.
struct Reweighted {
  std::vector<uint32_t> shares = {};  // as MixtureSpec's
  // Where epochs go on from each other: since when they hold, and what each lane had taken of each source then.
  uint64_t since_epoch = 0;
  std::vector<uint64_t> taken = {};
  bool operator==(const Reweighted&) const = default;
};

/// The stages that are told apart, in the order of the text. Outputs, features, parallelism, memory, index and cache
/// change no order: a feed may go on with others. `errors` counts by what it leaves out.
inline constexpr std::array<std::string_view, 10> state_stages = {
    "source", "interleave", "filter", "window", "mixture", "shuffle", "seed", "epoch", "batch", "errors"};
/// Those that the pipeline's text alone decides: the first ones.
inline constexpr size_t written_stages = 8;
using WrittenStages = std::array<uint32_t, written_stages>;

/// Of what is written, without what changes no order; a spelled-out default may count as another.
WrittenStages digests_of(const config::Pipeline& pipeline);

/// What a state says of its feed, and what a position is checked against. Also ranks have it that have no plan.
struct FeedIdentity {
  std::string data, pipeline;  // as in the text
  int64_t global_batch = 0;
  int64_t steps_per_epoch = 0;  // -1: without end
  bool epochs_go_on = false;    // from each other
  uint64_t lanes = 1;           // that its samples are dealt to
  uint64_t mixed_sources = 0;   // 0: no mixture
  uint64_t mixed_since = 0;     // the epoch from which on its weights hold
  std::optional<Reweighted> reweighted = std::nullopt;
};

/// Throws Error bad_pipeline for a step that the epoch does not have.
void check_position(const FeedIdentity& feed, const Position& position);

std::string state_text(const FeedIdentity& feed, const Position& position);

/// Throws Error bad_pipeline for a text that is no state and, unless changes are accepted, where data or pipeline are
/// others: it names what changed. Whether its position is one, the feed with its weights tells.
struct FeedState {
  Position position;
  std::optional<Reweighted> reweighted = std::nullopt;
};
FeedState read_state(std::string_view text, const FeedIdentity& feed, bool accept_changes);

}  // namespace feedline::flow
