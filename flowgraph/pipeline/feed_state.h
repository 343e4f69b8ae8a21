// The state of a feed as text, which a program stores and gives back later. It says what a trainer has received, and of
// which data and pipeline.
//
//   {"feedline_state":1,"epoch":3,"step":1200,"data":"0123456789abcdef","pipeline":"0123456789abcdef..."}
//
// "data" is DataSet::digest. "pipeline" has 8 hexadecimal digits for each of `state_stages`, which together decide
// which samples a step has. Nothing in the text depends on rank, world size, replicas, threads or what was prefetched.
// Without "mixture" the text has at most 256 bytes.
//
// If the weights of a mixture were changed, there are two more fields. "since" is the first epoch in which the new
// weights are used. "mixture" has for each source 6 hexadecimal digits of its weight, and 10 digits of the number of
// samples that had been taken from the source before that epoch. If such a number of samples is 2^40 or more,
// "feedline_state" is 2, and all numbers of samples have 16 digits.
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

/// A place in the feed: all epochs before `epoch`, and the first `step` steps of `epoch`, have been received.
struct Position {
  uint64_t epoch = 0;
  int64_t step = 0;
  auto operator<=>(const Position&) const = default;
};
/// Returns `why`, the error that has ended the feed, with step and epoch of `position` before its message.
Error in_step(const Position& position, const Error& why);

/// Weights of a mixture that replace the weights in the pipeline.
struct Reweighted {
  std::vector<uint32_t> shares = {};  // as MixtureSpec::shares
  // The two members below matter only for CYCLE_FOREVER, with which each epoch continues where the last one ended: the
  // first epoch in which these weights are used, and how many samples had been taken from each source before that
  // epoch.
  uint64_t since_epoch = 0;
  std::vector<uint64_t> taken = {};
  bool operator==(const Reweighted&) const = default;
};

/// The parts ("stages") of a pipeline of which a state has digests, in the order of the state's text. A feed may
/// continue from a state only if they have not changed. Outputs, features, parallelism, memory, index and cache are not
/// among them, because they do not change the order of samples. But features that `filter` or window.key read may
/// change it. So `filter` and `window` are also compared by their effect: which samples the filter keeps, and where the
/// key changes. So is the `shuffle` BLOCK: by the blocks of compressed files, which the index cuts. `errors` is
/// compared by the set of records that it leaves out.
inline constexpr std::array<std::string_view, 10> state_stages = {
    "source", "interleave", "filter", "window", "mixture", "shuffle", "seed", "epoch", "batch", "errors"};
/// The first `written_stages` of the state_stages are digested from the pipeline's text. The digests of the remaining
/// stages are computed from the data (feed_facts.cc).
inline constexpr size_t written_stages = 8;
inline constexpr size_t filter_stage = 2, window_stage = 3, shuffle_stage = 5;
using WrittenStages = std::array<uint32_t, written_stages>;

/// Returns digests of the written stages, without the fields that do not change the order. A default that is written
/// out may have a different digest than one that is left out.
WrittenStages digests_of(const config::Pipeline& pipeline);

/// The values of a feed that its state contains, and against which a position is checked. Ranks that do not read have
/// no Plan, but they have this.
struct FeedIdentity {
  std::string data, pipeline;  // as the text of a state has them
  int64_t global_batch = 0;
  int64_t steps_per_epoch = 0;  // -1: an epoch has no end
  bool epochs_go_on = false;    // each epoch continues where the epoch before it ended
  uint64_t mixed_sources = 0;   // how many sources are mixed; 0: no mixture
  uint64_t mixed_since = 0;     // the first epoch in which the mixture's present weights are used
  std::optional<Reweighted> reweighted = std::nullopt;
};

/// Returns the maximum number of steps of `global_batch` samples of which all samples can be counted in an int64.
int64_t countable_steps(int64_t global_batch) noexcept;

/// Throws Error bad_pipeline if a feed cannot be at this position: if the epoch has no such step, comes before the
/// first epoch in which the mixture's weights are used, or is too large for its samples to be counted.
void check_position(const FeedIdentity& feed, const Position& position);

/// Returns the text of the state of `feed` at `position`.
std::string state_text(const FeedIdentity& feed, const Position& position);

/// A state, read from its text.
struct FeedState {
  Position position;
  std::optional<Reweighted> reweighted = std::nullopt;
};
/// Reads the text of a state. Throws Error bad_pipeline if the text is not a state. Unless `accept_changes`, throws
/// Error bad_pipeline also if the data or the pipeline are not those of `feed`; the error names what changed. Does not
/// check the position: call check_position() with the identity of the feed that has the state's weights.
FeedState read_state(std::string_view text, const FeedIdentity& feed, bool accept_changes);

}  // namespace feedline::flow
