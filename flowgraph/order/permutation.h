// The numbers [0, n) in random order, computed one by one without storing them.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "base/draws.h"

namespace feedline::flow {

/// A random bijection of [0, n), chosen by a key. It is an alternating Feistel network over the numbers below the next
/// power of two. A result that is not below n is sent through the network again until it is ("cycle walking": Black and
/// Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). On average a number goes through the network fewer than two
/// times.
///
/// If n is less than 16, the numbers are stored in shuffled order instead: the halves of the network would have only a
/// bit or two, which is too few to give all bijections equally often.
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t key) noexcept : n_(n), key_(key) {
    if (n < shuffled_.size())
      fill_shuffled(std::span(shuffled_.data(), n), Draws(key), [](size_t i) { return static_cast<uint8_t>(i); });
    const auto bits = static_cast<int>(std::bit_width(n > 1 ? n - 1 : 1));
    low_bits_ = bits / 2;
    low_ = (uint64_t{1} << low_bits_) - 1;
    high_ = (uint64_t{1} << (bits - low_bits_)) - 1;
  }

  /// Returns the i-th number of the random order. Precondition: i < n.
  uint64_t operator()(uint64_t i) const noexcept {
    if (n_ < shuffled_.size()) return shuffled_[i];
    do i = round_trip(i);
    while (i >= n_);
    return i;
  }

 private:
  static constexpr uint64_t rounds = 3;  // each round replaces both halves

  uint64_t round_trip(uint64_t i) const noexcept {
    uint64_t low = i & low_, high = i >> low_bits_;
    for (uint64_t r = 0; r < rounds; r++) {
      low = (low ^ mix64(key_ + 2 * r + (high << 3))) & low_;
      high = (high ^ mix64(key_ + 2 * r + 1 + (low << 3))) & high_;
    }
    return high << low_bits_ | low;
  }

  uint64_t n_, key_;
  int low_bits_;
  uint64_t low_, high_;
  std::array<uint8_t, 16> shuffled_ = {};  // the whole order, if n is less than 16
};

}  // namespace feedline::flow
