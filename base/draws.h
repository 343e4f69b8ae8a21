// Random numbers as a pure function of a key. They are the same on every machine, in whatever order they are asked for.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

#include "base/audit.h"

namespace feedline {

/// Returns a hash of `parts`, which serves as the key of Draws. Give each random choice a key of its own, such as
/// key_of({seed, purpose, number}), where `purpose` distinguishes the kinds of choices.
constexpr uint64_t key_of(std::initializer_list<uint64_t> parts) noexcept {
  uint64_t key = 0;
  for (uint64_t part : parts) key = mix64(key ^ mix64(part + 1));
  return key;
}

/// Generates the random numbers of a key, one after another (SplitMix64).
class Draws {
 public:
  explicit Draws(uint64_t key) noexcept : state_(key) {}

  uint64_t next() noexcept { return mix64(state_ += 0x9e3779b97f4a7c15u); }
  /// Returns a number in [0, 1), a multiple of 2^-53.
  double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Returns a number in [0, n). Precondition: n > 0. Its distribution is uniform to within n / 2^32.
  uint32_t below(uint32_t n) noexcept { return static_cast<uint32_t>((next() >> 32) * n >> 32); }

 private:
  uint64_t state_;
};

/// Fills `items` with item(0), item(1), ... in random order (the inside-out shuffle of Fisher and Yates).
template <typename T, typename Item>
void fill_shuffled(std::span<T> items, Draws draws, const Item& item) noexcept {
  for (size_t i = 0; i < items.size(); i++) {
    const uint32_t place = draws.below(static_cast<uint32_t>(i + 1));
    items[i] = items[place];
    items[place] = item(i);
  }
}

/// Puts `items` into random order (the shuffle of Fisher and Yates).
template <typename T>
void shuffle(std::span<T> items, Draws draws) noexcept {
  for (size_t i = items.size(); i > 1; i--) std::swap(items[i - 1], items[draws.below(static_cast<uint32_t>(i))]);
}

}  // namespace feedline
