// Mixtures: computes how many samples an epoch draws from each source, and which source each sample comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flowgraph/order/apportionment.h"
#include "flowgraph/order/lanes.h"
#include "flowgraph/order/stratified.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// The arithmetic of a mixture. The samples of an epoch are drawn from the sources by weight. Each source keeps an
/// order of its own (order.h), and every epoch begins with a new pass over each source. The source of each sample is
/// found in three stages:
///
/// 1. Amounts: how many samples an epoch takes from each source. They follow from the weights and from the sizes of the
///    sources. An epoch is one part or several; within a part, each source is drawn from by its weight.
///    FIRST_DATASET_EXHAUSTED and CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED have one part, which ends when the first source or
///    the last source is exhausted. ALL_DATASETS_EXHAUSTED takes every sample once: a part ends whenever a source is
///    exhausted, and the next part goes on without that source.
/// 2. Steps: how many of these samples each step takes: its share of each source, within two (apportionment.h). A step
///    in which a source is exhausted takes samples of several parts: of each part a source's share, within less than
///    three.
/// 3. Draws: the samples of a step come in a random order that is even, too (stratified.h, MixtureDraws).
///
/// So which source each sample comes from is the same in every shuffle mode. Under BLOCK the samples of each source are
/// dealt to the source's lanes in turn.
///
/// CYCLE_FOREVER is different: epochs have a fixed number of steps, and each continues where the last one ended. The
/// sequence of all epochs is cut into parts. A part has as many whole steps as it takes to give each source exactly the
/// share that its weight says.
class Mixture {
 public:
  /// `sizes` has for each source the number of its samples in all passes of an epoch together. `lanes` is the number of
  /// lanes of each source, and `global_batch` the number of samples of a step. `epoch_samples` is the number of samples
  /// in an epoch if each epoch continues where the last one ended (CYCLE_FOREVER), otherwise 0. Throws Error
  /// bad_pipeline if the sources cannot be mixed in this way.
  Mixture(const MixtureSpec& spec, const std::vector<uint64_t>& sizes, const ShuffleSpec& shuffle, uint32_t lanes,
          uint64_t global_batch, uint64_t epoch_samples);

  bool epochs_go_on() const noexcept { return epoch_samples_ > 0; }
  /// CYCLE_FOREVER: the first epoch in which these weights are used.
  uint64_t since_epoch() const noexcept { return since_epoch_; }
  /// The number of samples in an epoch.
  uint64_t samples() const noexcept { return samples_; }
  /// For each source, the number of its samples in an epoch; 0 with CYCLE_FOREVER.
  const std::vector<uint64_t>& amounts() const noexcept { return amounts_; }
  /// For each source, how its samples are dealt to its lanes.
  const std::vector<Lanes>& lanes() const noexcept { return lanes_; }
  /// Returns for each source how many of its samples were taken in the epochs before `epoch`; 0 in modes other than
  /// CYCLE_FOREVER, because there every epoch begins anew.
  std::vector<uint64_t> taken_before(uint64_t epoch) const;

  /// Returns the source's share, by its weight, of `whole`, which all sources divide among themselves, such as a
  /// shuffle buffer. The share is rounded down and raised by one. The share of 0 is 0.
  uint64_t part_of(size_t source, uint64_t whole) const noexcept;

  /// Returns an upper bound for the number of samples from this source among any `count` consecutive samples of a step.
  uint64_t most_of(size_t source, uint64_t count) const noexcept;

  /// Returns the source's weight and its samples in an epoch as text for the user.
  std::string text(size_t source) const;

 private:
  friend class MixtureDraws;
  void draw_once(const std::vector<uint64_t>& sizes);
  void draw_by_weight(const std::vector<uint64_t>& sizes, size_t whole_source);
  void plan_lanes(uint32_t lanes);

  std::vector<uint32_t> shares_;
  uint64_t all_shares_;
  uint64_t since_epoch_ = 0;
  std::vector<uint64_t> taken_;  // for each source: how many of its samples were taken before since_epoch_
  uint64_t seed_;
  bool new_order_each_epoch_;
  uint64_t global_batch_;
  uint64_t epoch_samples_;
  uint64_t samples_ = 0;
  std::vector<uint64_t> amounts_;
  std::vector<Lanes> lanes_;
  // For each part the amount of each source. With CYCLE_FOREVER there is one entry, for all parts.
  std::vector<std::vector<uint64_t>> parts_;
};

/// Yields the source of one sample of a mixture after another.
class MixtureDraws {
 public:
  /// Begins at sample `sample` of epoch `epoch`, which must be the first sample of a step. Keeps a pointer to
  /// `mixture`.
  MixtureDraws(const Mixture& mixture, uint64_t epoch, uint64_t sample);

  /// Returns the source of the next sample. With CYCLE_FOREVER, continues into the next epoch. Precondition: there is a
  /// next sample.
  uint32_t next();
  /// Returns for each source how many samples were taken before the sample with which the object began: in its epoch,
  /// or with CYCLE_FOREVER in all epochs.
  const std::vector<uint64_t>& before() const noexcept { return before_; }

 private:
  void enter_part(uint64_t sample);

  const Mixture* mixture_;
  uint64_t epoch_;  // 0 with CYCLE_FOREVER
  uint64_t part_ = 0;
  uint64_t part_begin_ = 0;  // the part's first sample, counted from the epoch's (or since_epoch()'s) beginning
  uint64_t part_key_ = 0;
  std::vector<uint64_t> before_;
  std::optional<Apportionment> steps_;  // the steps of the part that are still to come
  std::optional<Stratified> draws_;     // the samples of the current step, as far as they belong to the part
};

}  // namespace feedline::flow
