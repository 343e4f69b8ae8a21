// Lanes: what is dealt out in turn, item by item.
#pragma once

#include <cstdint>

namespace feedline::flow {

/// Items [begin, end), dealt in turn: item i to lane i % lanes.
constexpr uint64_t dealt(uint64_t begin, uint64_t end, uint32_t lane, uint32_t lanes) noexcept {
  const auto up_to = [&](uint64_t count) { return (count + lanes - 1 - lane) / lanes; };
  return up_to(end) - up_to(begin);
}

/// How an order's samples fall to lanes.
struct Lanes {
  uint32_t count = 1;
  uint64_t step = 1;      // samples that a step takes of one, at most
  uint64_t rotation = 0;  // samples that were dealt out before the first: of other sources

  /// Of the samples [begin, end).
  uint64_t samples(uint32_t lane, uint64_t begin, uint64_t end) const noexcept {
    return dealt(rotation + begin, rotation + end, lane, count);
  }
};

}  // namespace feedline::flow
