#include "flowgraph/order/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/draws.h"
#include "base/mul_div.h"
#include "feedline/error.h"
#include "flowgraph/order/lanes.h"
#include "flowgraph/order/purpose.h"

namespace feedline::flow {
namespace {

// The maximum number of samples of a source in an epoch. beside() must fit into 64 bits: it is at most this number
// times a share.
constexpr uint64_t most_samples = uint64_t{1} << 40;
static_assert(most_samples <= std::numeric_limits<uint64_t>::max() / MixtureSpec::whole);

uint64_t sum(const std::vector<uint64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), uint64_t{0});
}

// Returns whether a source is exhausted before another source if both are drawn from by their shares, that is, whether
// its size / share is less.
bool sooner(uint64_t size, uint32_t share, uint64_t other_size, uint32_t other_share) {
  return Wide{size} * other_share < Wide{other_size} * share;
}

// Let source A have `size` samples and share `share`, and source B share `own_share`. Returns how many samples of B are
// drawn while all of A are drawn, rounded down. If B is exhausted later than A, that is at most the size of B; if
// earlier, at least.
uint64_t beside(uint64_t size, uint32_t share, uint32_t own_share) { return mul_div(size, own_share, share); }

}  // namespace

Mixture::Mixture(const MixtureSpec& spec, const std::vector<uint64_t>& sizes, const ShuffleSpec& shuffle,
                 uint32_t lanes, uint64_t global_batch, uint64_t epoch_samples)
    : shares_(spec.reweighted ? spec.reweighted->shares : spec.shares),
      all_shares_(std::accumulate(shares_.begin(), shares_.end(), uint64_t{0})),
      taken_(sizes.size()),
      seed_(shuffle.seed),
      new_order_each_epoch_(shuffle.reshuffle_each_epoch),
      global_batch_(global_batch),
      epoch_samples_(epoch_samples),
      amounts_(sizes.size()) {
  if (spec.reweighted && epochs_go_on()) {
    since_epoch_ = spec.reweighted->since_epoch;
    taken_ = spec.reweighted->taken;
  }
  for (size_t source = 0; source < sizes.size(); source++) {
    if (sizes[source] == 0 && (spec.stop == MixtureStop::cycle_forever || spec.stop == MixtureStop::cycle_until_all))
      throw Error(
          Category::bad_pipeline,
          fmt::format(
              "source[{}]: it has no samples, so the mixture cannot draw from it; remove this source, or change its "
              "'range' or the filter so that samples remain",
              source));
    if (sizes[source] > most_samples)
      throw Error(
          Category::bad_pipeline,
          fmt::format(
              "source[{}]: an epoch of a mixture can draw at most {} samples from one source, but this source has {} "
              "in an epoch; give this source a smaller 'range', or lower epoch.repeat",
              source, most_samples, sizes[source]));
  }
  size_t first = 0, last = 0;  // the sources that are exhausted first and last
  for (size_t source = 1; source < sizes.size(); source++) {
    if (sooner(sizes[source], shares_[source], sizes[first], shares_[first])) first = source;
    if (sooner(sizes[last], shares_[last], sizes[source], shares_[source])) last = source;
  }
  switch (spec.stop) {
    case MixtureStop::first_exhausted:
      draw_by_weight(sizes, first);
      break;
    case MixtureStop::cycle_until_all:
      draw_by_weight(sizes, last);
      break;
    case MixtureStop::all_exhausted:
      draw_once(sizes);
      break;
    case MixtureStop::cycle_forever:
      // A part has the minimum number of steps in which each source can come exactly as often as its weight says.
      parts_.emplace_back();
      for (const uint32_t share : shares_)
        parts_.back().push_back(share * (global_batch / std::gcd(all_shares_, global_batch)));
      break;
  }
  if (!epochs_go_on())
    for (size_t source = 0; source < sizes.size(); source++)
      for (const std::vector<uint64_t>& part : parts_) amounts_[source] += part[source];
  samples_ = epochs_go_on() ? epoch_samples_ : sum(amounts_);
  plan_lanes(lanes);
}

// Deals the samples to the lanes, one source after another. A source's first sample goes to the lane whose turn it is
// after the last sample of the source before it. So, over all sources, all lanes of an epoch have the same number of
// samples, to within one.
void Mixture::plan_lanes(uint32_t lanes) {
  uint64_t before = 0;
  for (size_t source = 0; source < shares_.size(); source++) {
    const uint64_t most = std::max<uint64_t>(1, div_up(most_of(source, global_batch_), lanes));
    lanes_.push_back({.count = lanes, .step = most, .rotation = before % lanes});
    lanes_.back().spread();
    before += amounts_[source];
  }
}

// Makes the epoch one part, which ends when all samples of `whole_source` have been drawn once.
void Mixture::draw_by_weight(const std::vector<uint64_t>& sizes, size_t whole_source) {
  std::vector<uint64_t> part;
  for (const uint32_t share : shares_) {
    part.push_back(beside(sizes[whole_source], shares_[whole_source], share));
    if (part.back() > most_samples)
      throw Error(
          Category::bad_pipeline,
          fmt::format(
              "mixture: {} samples would be drawn from another source before source[{}] is exhausted, but at most {} "
              "are supported; raise the weight of source[{}]",
              part.back(), whole_source, most_samples, whole_source));
  }
  part[whole_source] = sizes[whole_source];
  parts_.push_back(std::move(part));
}

// Makes the epoch of all samples of all sources. The first part ends when the first source is exhausted. In the next
// part the other sources are drawn from by their weights, until the next source is exhausted; and so on.
void Mixture::draw_once(const std::vector<uint64_t>& sizes) {
  std::vector<uint64_t> left = sizes;
  for (;;) {
    size_t first = left.size();
    for (size_t source = 0; source < left.size(); source++)
      if (left[source] > 0 &&
          (first == left.size() || sooner(left[source], shares_[source], left[first], shares_[first])))
        first = source;
    if (first == left.size()) return;
    std::vector<uint64_t> part(left.size());
    for (size_t source = 0; source < left.size(); source++)
      part[source] = std::min(left[source], beside(left[first], shares_[first], shares_[source]));
    part[first] = left[first];
    for (size_t source = 0; source < left.size(); source++) left[source] -= part[source];
    parts_.push_back(std::move(part));
  }
}

std::vector<uint64_t> Mixture::taken_before(uint64_t epoch) const {
  return epochs_go_on() ? MixtureDraws(*this, epoch, 0).before() : std::vector<uint64_t>(shares_.size());
}

uint64_t Mixture::part_of(size_t source, uint64_t whole) const noexcept {
  return mul_div(whole, shares_[source], all_shares_) + (whole > 0 ? 1 : 0);
}

// A step takes samples of one part or of several. Of a part's samples in the step, a source has its share within less
// than 3 (apportionment.h). If the step takes the whole part, the source has exactly its amount in the part. In a run
// of a step's samples, each source comes as often as its share of the run's time says, plus or minus two
// (stratified.h). So a run has at least as many samples as its time says, minus two for each source. This bounds the
// time of a run of `count` samples.
uint64_t Mixture::most_of(size_t source, uint64_t count) const noexcept {
  const uint64_t more = count < global_batch_ ? 2 * shares_.size() : 0, slack = count < global_batch_ ? 5 : 3;
  uint64_t most = 0;
  for (const std::vector<uint64_t>& part : parts_)
    if (part[source] > 0) most = std::max(most, mul_div(count + more * parts_.size(), part[source], sum(part)) + 1);
  return std::min(count, most + slack * parts_.size());
}

std::string Mixture::text(size_t source) const {
  const double weight = static_cast<double>(shares_[source]) / static_cast<double>(all_shares_);
  return epochs_go_on() ? fmt::format("weight {:.4g}", weight)
                        : fmt::format("weight {:.4g}, {} samples in each epoch", weight, amounts_[source]);
}

MixtureDraws::MixtureDraws(const Mixture& mixture, uint64_t epoch, uint64_t sample)
    : mixture_(&mixture),
      epoch_(mixture.epochs_go_on() ? 0 : epoch),
      before_(mixture.epochs_go_on() ? mixture.taken_ : std::vector<uint64_t>(mixture.shares_.size())) {
  const std::vector<std::vector<uint64_t>>& parts = mixture.parts_;
  const auto pass_over = [&](const std::vector<uint64_t>& part, uint64_t times) {
    for (size_t source = 0; source < before_.size(); source++) before_[source] += part[source] * times;
    part_begin_ += sum(part) * times;
    part_ += times;
  };
  if (mixture.epochs_go_on()) {
    sample += (epoch - mixture.since_epoch_) * mixture.epoch_samples_;
    pass_over(parts[0], sample / sum(parts[0]));
  } else {
    while (part_ + 1 < parts.size() && part_begin_ + sum(parts[part_]) <= sample) pass_over(parts[part_], 1);
  }
  enter_part(sample);
  for (size_t source = 0; source < before_.size(); source++) before_[source] += steps_->before()[source];
}

// Enters part number part_, at the step in which sample number `sample` lies.
void MixtureDraws::enter_part(uint64_t sample) {
  const bool goes_on = mixture_->epochs_go_on();
  const uint64_t epoch = mixture_->new_order_each_epoch_ ? epoch_ : 0;
  const uint64_t part = goes_on && !mixture_->new_order_each_epoch_ ? 0 : part_;
  part_key_ = key_of({mixture_->seed_, of_epochs, epoch, part});
  // With CYCLE_FOREVER a part consists of whole steps, and its samples are counted from the part's beginning.
  const uint64_t from = goes_on ? 0 : part_begin_;
  steps_.emplace(mixture_->parts_[goes_on ? 0 : part_], from, mixture_->global_batch_, part_key_,
                 from + sample - part_begin_);
}

uint32_t MixtureDraws::next() {
  while (!draws_ || draws_->ended()) {
    while (steps_->ended()) {
      part_begin_ += sum(mixture_->parts_[mixture_->epochs_go_on() ? 0 : part_]);
      part_++;
      enter_part(part_begin_);
    }
    const uint64_t key = key_of({part_key_, of_steps, steps_->begin()});
    draws_.emplace(steps_->next(), key);
  }
  return draws_->next();
}

}  // namespace feedline::flow
