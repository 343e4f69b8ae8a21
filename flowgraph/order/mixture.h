// Mixtures: how many samples an epoch draws of each source, and which source each of its samples comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flowgraph/order/lanes.h"
#include "flowgraph/order/stratified.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Each source is taken by weight, in its own order, from the beginning of a pass in every epoch. The samples of all
/// sources, one source after another, are dealt to the lanes in turn; each lane then draws its own in a random order in
/// which every stretch has each source's share (stratified.h).
///
/// Under CYCLE_FOREVER epochs go on from each other and every lane takes the same number of each source.
class Mixture {
 public:
  /// sizes: samples of each source in the passes of an epoch. lane_epoch: samples that a lane gives to an epoch, where
  /// epochs go on from each other, else 0. Throws Error bad_pipeline where the sources cannot be mixed so.
  Mixture(const MixtureSpec& spec, const std::vector<uint64_t>& sizes, uint64_t seed, uint32_t lanes,
          uint64_t lane_epoch);

  bool epochs_go_on() const noexcept { return lane_epoch_ > 0; }
  /// The weights hold from this epoch on, where epochs go on from each other.
  uint64_t since_epoch() const noexcept { return since_epoch_; }
  /// Of an epoch, of all sources and of each.
  uint64_t samples() const noexcept { return samples_; }
  const std::vector<uint64_t>& amounts() const noexcept { return amounts_; }
  /// Where the dealing of a source begins.
  uint64_t rotation(size_t source) const noexcept { return rotations_[source]; }

  /// What a lane draws in an epoch, of each source: part by part, each in the weights of the sources that are left.
  std::vector<std::vector<uint64_t>> parts_of_lane(uint32_t lane, uint64_t epoch) const;
  /// Of each source, what every lane took in the epochs before this one, where epochs go on from each other; else 0.
  std::vector<uint64_t> taken_before(uint64_t epoch) const;
  uint64_t key(uint64_t epoch, uint32_t lane, size_t part) const noexcept;

  /// What falls to a source of something that all share: by its weight, rounded up.
  uint64_t part_of(size_t source, uint64_t whole) const noexcept;

  /// At most so many of any `count` consecutive samples of a lane are of this source.
  uint64_t most_of(size_t source, uint64_t count) const noexcept;

  /// For people.
  std::string text(size_t source) const;

 private:
  void draw_once(const std::vector<uint64_t>& sizes);
  void draw_by_weight(const std::vector<uint64_t>& sizes, size_t whole_source);

  std::vector<uint32_t> shares_;
  uint64_t all_shares_;
  uint64_t since_epoch_ = 0;
  std::vector<uint64_t> taken_;  // by each lane, before since_epoch_
  uint64_t seed_;
  uint32_t lanes_;
  uint64_t lane_epoch_;
  uint64_t samples_ = 0;
  std::vector<uint64_t> amounts_, rotations_;
  std::vector<std::vector<uint64_t>> parts_;  // amounts of each source, of all lanes together
};

/// The sources of a lane's samples.
class LaneDraws {
 public:
  /// From a sample of the lane in an epoch on.
  LaneDraws(const Mixture& mixture, uint32_t lane, uint64_t epoch, uint64_t sample);

  /// Goes on into the next epoch where epochs do. Precondition: there is one.
  uint32_t next();
  /// Samples of each source that the lane took before: of this epoch, or of all where they go on from each other.
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
