// Random numbers by counter: a pure function of a key, the same on every machine and in any order of asking.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

#include "base/audit.h"

namespace feedline::flow {

/// What is random about one thing, and independent of all others: key_of({seed, what, which}).
constexpr uint64_t key_of(std::initializer_list<uint64_t> parts) noexcept {
  uint64_t key = 0;
  for (uint64_t part : parts) key = mix64(key ^ mix64(part + 1));
  return key;
}

/// SplitMix64: the numbers of a key, one after another.
class Draws {
 public:
  explicit Draws(uint64_t key) noexcept : state_(key) {}

  uint64_t next() noexcept { return mix64(state_ += 0x9e3779b97f4a7c15u); }
  /// In [0, n), n > 0; less uniform than it could be by at most n / 2^32.
  uint32_t below(uint32_t n) noexcept { return static_cast<uint32_t>((next() >> 32) * n >> 32); }

 private:
  uint64_t state_;
};

/// Fisher and Yates, from the inside out: items.size() items in random order, item(i) is the i-th before that.
template <typename T, typename Item>
void fill_shuffled(std::span<T> items, Draws draws, const Item& item) noexcept {
  for (size_t i = 0; i < items.size(); i++) {
    const uint32_t place = draws.below(static_cast<uint32_t>(i + 1));
    items[i] = items[place];
    items[place] = item(i);
  }
}

/// Fisher and Yates.
template <typename T>
void shuffle(std::span<T> items, Draws draws) noexcept {
  for (size_t i = items.size(); i > 1; i--) std::swap(items[i - 1], items[draws.below(static_cast<uint32_t>(i))]);
}

}  // namespace feedline::flow
