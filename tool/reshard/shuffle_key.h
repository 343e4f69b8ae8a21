// A uniformly random order of N records, as a function of a seed: ascending by key.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/audit.h"

namespace feedline::cli {

/// SplitMix64's outputs (Steele, Lea, Flood, 2014) from a state that the seed gives. For one seed the keys of all
/// record numbers differ, as each step is a bijection.
class ShuffleKeys {
 public:
  explicit ShuffleKeys(uint64_t seed) noexcept : state_(mix64(mix64(seed) ^ 0x73706c6974u)) {}

  uint64_t operator()(uint64_t record) const noexcept { return mix64(state_ + (record + 1) * 0x9e3779b97f4a7c15u); }

 private:
  uint64_t state_;
};

/// The keys at some places of the order: of records 0 to `records` - 1, the one with ranks[i] smaller ones. `ranks`
/// ascend, and are less than `records`. Two passes over all keys, some nanoseconds each, on all cores; memory: 16 MiB,
/// and a few KiB for each rank.
std::vector<uint64_t> keys_at(const ShuffleKeys& keys, uint64_t records, std::span<const uint64_t> ranks);

}  // namespace feedline::cli
