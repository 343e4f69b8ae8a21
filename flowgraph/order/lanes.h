// Dealing samples to lanes: one by one, in turn (round-robin).
#pragma once

#include <cstdint>

namespace feedline::flow {

/// Returns how many of the items [begin, end) a lane is dealt, if item i goes to lane i % lanes.
constexpr uint64_t dealt(uint64_t begin, uint64_t end, uint32_t lane, uint32_t lanes) noexcept {
  const auto up_to = [&](uint64_t count) { return (count + lanes - 1 - lane) / lanes; };
  return up_to(end) - up_to(begin);
}

/// How many samples of an order each lane has: as many as if the samples were dealt to the lanes in turn. The samples
/// themselves are not dealt: within a pass, a lane is one contiguous stretch of that length (Order::pass()). Counted
/// from the beginning of the epoch, the lanes never differ by more than one sample.
struct Lanes {
  uint32_t count = 1;     // the number of lanes, C
  uint64_t step = 1;      // the most samples that a step takes of one lane
  uint64_t rotation = 0;  // samples of other sources of a mixture that were dealt before this order's first sample

  /// Returns how many of the order's samples [begin, end) a lane has.
  uint64_t samples(uint32_t lane, uint64_t begin, uint64_t end) const noexcept {
    return dealt(rotation + begin, rotation + end, lane, count);
  }
};

}  // namespace feedline::flow
