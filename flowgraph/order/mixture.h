// Mixtures: how many samples an epoch draws from each source, and which source each sample of an epoch comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flowgraph/order/stratified.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// The arithmetic of a mixture. The samples of an epoch are drawn from the sources by weight. Each source keeps an
/// order of its own (order.h), and every epoch begins with a new pass over each source. What is drawn is found in three
/// stages:
///
/// 1. Amounts: how many samples an epoch takes of each source. They follow from the weights and from the sizes of the
///    sources. An epoch is one part or several; within a part, each source is drawn from by its weight.
///    FIRST_DATASET_EXHAUSTED and CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED have one part, which ends when the first source or
///    the last source is exhausted. ALL_DATASETS_EXHAUSTED takes every sample once: a part ends whenever a source is
///    exhausted, and the next part goes on without that source.
/// 2. Lanes: the samples of the epoch, one source after another, are dealt to the lanes in turn. So each lane has its
///    share of every source, and all lanes have the same number of samples, to within one.
/// 3. Draws: each lane draws its samples in a random order in which every stretch has each source's share
///    (stratified.h, LaneDraws).
///
/// CYCLE_FOREVER is different: epochs are of a fixed number of steps and go on from each other, and every lane takes
/// the same number of samples of each source.
class Mixture {
 public:
  /// sizes: for each source, the samples that it has in the passes of an epoch. lane_epoch: the number of samples that
  /// a lane gives to an epoch if epochs go on from each other (CYCLE_FOREVER), else 0. Throws Error bad_pipeline if the
  /// sources cannot be mixed in this way.
  Mixture(const MixtureSpec& spec, const std::vector<uint64_t>& sizes, uint64_t seed, uint32_t lanes,
          uint64_t lane_epoch);

  bool epochs_go_on() const noexcept { return lane_epoch_ > 0; }
  /// The epoch from which on the weights hold, if epochs go on from each other.
  uint64_t since_epoch() const noexcept { return since_epoch_; }
  /// The number of samples in an epoch.
  uint64_t samples() const noexcept { return samples_; }
  /// For each source, the number of its samples in an epoch; 0 if epochs go on from each other.
  const std::vector<uint64_t>& amounts() const noexcept { return amounts_; }
  /// Returns the lane to which the source's first sample is dealt (Lanes::rotation).
  uint64_t rotation(size_t source) const noexcept { return rotations_[source]; }

  /// Returns how many samples a lane draws in an epoch: for each part of the epoch, and in it for each source.
  std::vector<std::vector<uint64_t>> parts_of_lane(uint32_t lane, uint64_t epoch) const;
  /// Returns for each source how many samples every lane took in the epochs before `epoch`, if epochs go on from each
  /// other; else 0.
  std::vector<uint64_t> taken_before(uint64_t epoch) const;
  /// Returns the key of the random order in which a lane draws a part of an epoch.
  uint64_t key(uint64_t epoch, uint32_t lane, size_t part) const noexcept;

  /// Returns the source's share, by its weight, of `whole`, which all sources divide among themselves, such as a
  /// shuffle buffer. The share is rounded down and raised by one. The share of 0 is 0.
  uint64_t part_of(size_t source, uint64_t whole) const noexcept;

  /// Returns an upper bound for how many of any `count` consecutive samples of a lane come from this source.
  uint64_t most_of(size_t source, uint64_t count) const noexcept;

  /// Returns the source's weight and its samples in an epoch as text for the user.
  std::string text(size_t source) const;

 private:
  void draw_once(const std::vector<uint64_t>& sizes);
  void draw_by_weight(const std::vector<uint64_t>& sizes, size_t whole_source);

  std::vector<uint32_t> shares_;
  uint64_t all_shares_;
  uint64_t since_epoch_ = 0;
  std::vector<uint64_t> taken_;  // for each source: the samples that each lane took before since_epoch_
  uint64_t seed_;
  uint32_t lanes_;
  uint64_t lane_epoch_;
  uint64_t samples_ = 0;
  std::vector<uint64_t> amounts_, rotations_;
  std::vector<std::vector<uint64_t>> parts_;  // for each part: the amount of each source, for all lanes together
};

/// Tells from which source each successive sample of one lane is drawn. (A lane is one of the parallel sequences into
/// which an epoch is cut, so that ranks can share it.)
class LaneDraws {
 public:
  /// Begins at sample `sample` of the lane in epoch `epoch`. Keeps a pointer to `mixture`.
  LaneDraws(const Mixture& mixture, uint32_t lane, uint64_t epoch, uint64_t sample);

  /// Returns the source of the next sample. Goes on into the next epoch if epochs go on from each other. Precondition:
  /// there is a next sample.
  uint32_t next();
  /// Returns for each source how many samples the lane has taken so far: in this epoch, or in all epochs if they go on
  /// from each other.
  std::vector<uint64_t> taken() const;

 private:
  void enter(uint64_t epoch);
  void enter_part(size_t part, uint64_t position);

  const Mixture* mixture_;
  uint32_t lane_;
  uint64_t epoch_ = 0;
  std::vector<std::vector<uint64_t>> parts_;
  size_t part_ = 0;
  std::optional<Stratified> draws_;
};

}  // namespace feedline::flow
