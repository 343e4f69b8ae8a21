#include "flowgraph/order/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/draws.h"
#include "base/mul_div.h"
#include "feedline/error.h"
#include "flowgraph/order/lanes.h"
#include "flowgraph/order/purpose.h"

namespace feedline::flow {
namespace {

constexpr uint64_t most_samples = uint64_t{1} << 40;  // the most samples of a source in an epoch: Stratified's limit

uint64_t sum(const std::vector<uint64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), uint64_t{0});
}

// Returns whether a source is exhausted before another source if both are drawn from by their shares: whether its
// size / share is less.
bool sooner(uint64_t size, uint32_t share, uint64_t other_size, uint32_t other_share) {
  return Wide{size} * other_share < Wide{other_size} * share;
}

// Returns how many samples are drawn from a source of share `own_share` while all `size` samples of another source, of
// share `share`, are drawn. The result is rounded down. So it is at most the source's own size if the source is
// exhausted later than the other, and at least its own size if it is exhausted earlier.
uint64_t beside(uint64_t size, uint32_t share, uint32_t own_share) { return mul_div(size, own_share, share); }

}  // namespace

Mixture::Mixture(const MixtureSpec& spec, const std::vector<uint64_t>& sizes, uint64_t seed, uint32_t lanes,
                 uint64_t lane_epoch)
    : shares_(spec.reweighted ? spec.reweighted->shares : spec.shares),
      all_shares_(std::accumulate(shares_.begin(), shares_.end(), uint64_t{0})),
      taken_(sizes.size()),
      seed_(seed),
      lanes_(lanes),
      lane_epoch_(lane_epoch),
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
              "source[{}]: it has no samples, so the mixture cannot draw from it; remove this source, or let its "
              "range and the filter keep some samples",
              source));
    if (sizes[source] > most_samples)
      throw Error(
          Category::bad_pipeline,
          fmt::format(
              "source[{}]: an epoch of a mixture can draw at most {} samples from one source, but this one has {} in "
              "an epoch; give it a smaller `range`, or lower epoch.repeat",
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
      samples_ = lane_epoch * lanes;
      break;
  }
  uint64_t before = 0;
  for (size_t source = 0; source < sizes.size(); source++) {
    for (const std::vector<uint64_t>& part : parts_) amounts_[source] += part[source];
    rotations_.push_back(before % lanes);
    before += amounts_[source];
  }
  if (!epochs_go_on()) samples_ = before;
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
              "mixture: {} samples would be drawn from another source before source[{}] is exhausted, and at most {} "
              "can be; raise the weight of source[{}]",
              part.back(), whole_source, most_samples, whole_source));
  }
  part[whole_source] = sizes[whole_source];
  parts_.push_back(std::move(part));
}

// Makes the epoch of all samples of all sources. The first part ends when the first source is exhausted. In the next
// part the others are drawn from by their weights, until the next source is exhausted; and so on.
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

std::vector<std::vector<uint64_t>> Mixture::parts_of_lane(uint32_t lane, uint64_t epoch) const {
  if (epochs_go_on()) {
    std::vector<uint64_t> amounts = taken_before(epoch + 1);
    const std::vector<uint64_t> before = taken_before(epoch);
    for (size_t source = 0; source < amounts.size(); source++) amounts[source] -= before[source];
    return {std::move(amounts)};
  }
  std::vector<std::vector<uint64_t>> parts;
  std::vector<uint64_t> begin = rotations_;
  for (const std::vector<uint64_t>& part : parts_) {
    parts.emplace_back();
    for (size_t source = 0; source < part.size(); source++) {
      parts.back().push_back(dealt(begin[source], begin[source] + part[source], lane, lanes_));
      begin[source] += part[source];
    }
  }
  return parts;
}

std::vector<uint64_t> Mixture::taken_before(uint64_t epoch) const {
  std::vector<uint64_t> taken(shares_.size());
  if (!epochs_go_on()) return taken;
  // What a lane takes of each source follows an endless sequence of periods of all_shares_ samples. In a period each
  // source comes as often as its share says, in stratified order.
  const uint64_t position = (epoch - since_epoch_) * lane_epoch_, period = position / all_shares_;
  taken =
      Stratified({shares_.begin(), shares_.end()}, key_of({seed_, of_epochs, period}), position % all_shares_).drawn();
  for (size_t source = 0; source < taken.size(); source++) taken[source] += taken_[source] + period * shares_[source];
  return taken;
}

uint64_t Mixture::key(uint64_t epoch, uint32_t lane, size_t part) const noexcept {
  return key_of({seed_, of_lane, epoch, lane, part});
}

uint64_t Mixture::part_of(size_t source, uint64_t whole) const noexcept {
  return mul_div(whole, shares_[source], all_shares_) + (whole > 0 ? 1 : 0);
}

// In a stretch of a stratified sequence's time, each source comes as often as its share of that time says, plus or
// minus two. So all sources together come at least as often as the time says, minus two for each source. That bounds
// the time of `count` samples, and with it how often one source comes in them. The amounts of a lane are off by up to
// one more, because samples are dealt to the lanes whole.
uint64_t Mixture::most_of(size_t source, uint64_t count) const noexcept {
  const uint64_t sources = shares_.size();
  if (epochs_go_on()) {
    // The amounts of an epoch differ from the weights' shares of it by at most four, as either end may be off by two.
    // The samples lie in at most `epochs` epochs.
    const uint64_t epochs = count / lane_epoch_ + 2;
    return std::min(count, mul_div(count + 6 * sources * epochs, shares_[source], all_shares_) + 6 * epochs + 1);
  }
  uint64_t most = 0;
  for (const std::vector<uint64_t>& part : parts_)
    if (part[source] > 0)
      most = std::max(most, mul_div(count + 4 * sources * parts_.size(), part[source], sum(part)) + 4 * parts_.size());
  return std::min(count, most);
}

std::string Mixture::text(size_t source) const {
  const double weight = static_cast<double>(shares_[source]) / static_cast<double>(all_shares_);
  return epochs_go_on() ? fmt::format("weight {:.4g}", weight)
                        : fmt::format("weight {:.4g}, {} samples of an epoch", weight, amounts_[source]);
}

LaneDraws::LaneDraws(const Mixture& mixture, uint32_t lane, uint64_t epoch, uint64_t sample)
    : mixture_(&mixture), lane_(lane) {
  enter(epoch);
  size_t part = 0;
  for (; part + 1 < parts_.size() && sample >= sum(parts_[part]); part++) sample -= sum(parts_[part]);
  enter_part(part, sample);
}

void LaneDraws::enter(uint64_t epoch) {
  epoch_ = epoch;
  parts_ = mixture_->parts_of_lane(lane_, epoch);
}

void LaneDraws::enter_part(size_t part, uint64_t position) {
  part_ = part;
  draws_.emplace(parts_[part], mixture_->key(epoch_, lane_, part), position);
}

uint32_t LaneDraws::next() {
  while (draws_->ended()) {
    if (part_ + 1 < parts_.size()) {
      enter_part(part_ + 1, 0);
    } else {
      enter(epoch_ + 1);
      enter_part(0, 0);
    }
  }
  return draws_->next();
}

std::vector<uint64_t> LaneDraws::taken() const {
  std::vector<uint64_t> taken = mixture_->taken_before(epoch_);
  for (size_t source = 0; source < taken.size(); source++) {
    for (size_t part = 0; part < part_; part++) taken[source] += parts_[part][source];
    taken[source] += draws_->drawn()[source];
  }
  return taken;
}

}  // namespace feedline::flow
