// Deals samples to lanes, the parallel sequences that a shuffled pass is cut into: one by one, in turn (round-robin).
#pragma once

#include <cstdint>
#include <numeric>

namespace feedline::flow {

/// Returns how many of the items [begin, end) a lane is dealt, if item i goes to lane i % lanes.
constexpr uint64_t dealt(uint64_t begin, uint64_t end, uint32_t lane, uint32_t lanes) noexcept {
  const auto up_to = [&](uint64_t count) { return (count + lanes - 1 - lane) / lanes; };
  return up_to(end) - up_to(begin);
}

/// Says how many of an order's samples each lane has: as many as if the samples were dealt to the lanes in turn. The
/// samples themselves are not dealt: within a pass, a lane is one contiguous stretch of that length (Order::pass()).
/// Counted from the beginning of the epoch, the numbers of samples that two lanes have had never differ by more than
/// one.
struct Lanes {
  uint32_t count = 1;     // the number of lanes, C
  uint64_t step = 1;      // the maximum number of samples that a step takes from one lane
  uint64_t rotation = 0;  // in a mixture: how many samples of the sources before this one are dealt, mod `count`
  // The order in which lanes take turns: item i goes to lane i * stride % count. `turn` is the inverse: turn * stride
  // is 1, modulo `count`.
  uint32_t stride = 1, turn = 1;

  /// Returns the lane that is dealt the order's sample number `sample`, counted from the beginning of the epoch.
  uint32_t lane_of(uint64_t sample) const noexcept {
    return static_cast<uint32_t>((rotation + sample) % count * stride % count);
  }
  /// Returns how many of the order's samples [begin, end) a lane has.
  uint64_t samples(uint32_t lane, uint64_t begin, uint64_t end) const noexcept {
    return dealt(rotation + begin, rotation + end, static_cast<uint32_t>(uint64_t{lane} * turn % count), count);
  }
  /// Sets `stride` and `turn` so that lanes that are far from each other have their turns one after another. Then any
  /// run of samples is spread evenly over all lanes. The stride is near the golden section of the number of lanes, and
  /// has no divisor in common with it.
  void spread() noexcept {
    const auto near = static_cast<uint32_t>(uint64_t{count} * 618 / 1000);
    stride = near > 0 ? near : 1;
    while (std::gcd(stride, count) != 1) stride++;
    turn = 1;
    while (uint64_t{turn} * stride % count != 1 % count) turn++;
  }
};

}  // namespace feedline::flow
