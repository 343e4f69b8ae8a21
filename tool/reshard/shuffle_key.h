// A uniformly random order of N records as a function of a seed: the records in ascending order of their keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/audit.h"

namespace feedline::tool {

/// The keys of all records: record i has output i of the random number generator SplitMix64 (Steele, Lea, Flood, 2014),
/// whose first state follows from the seed. For one seed all keys differ, because each step of SplitMix64 is a
/// bijection.
class ShuffleKeys {
 public:
  explicit ShuffleKeys(uint64_t seed) noexcept : state_(mix64(mix64(seed) ^ 0x73706c6974u)) {}

  uint64_t operator()(uint64_t record) const noexcept { return mix64(state_ + (record + 1) * 0x9e3779b97f4a7c15u); }

 private:
  uint64_t state_;
};

/// Returns some of the keys of the records [0, records): result[i] is the key for which exactly ranks[i] of all keys
/// are smaller. `ranks` must be ascending and less than `records`. Makes two passes over all keys on all cores, some
/// nanoseconds for each key. Takes 16 MiB of memory, and a few KiB for each element of `ranks`.
std::vector<uint64_t> keys_at(const ShuffleKeys& keys, uint64_t records, std::span<const uint64_t> ranks);

}  // namespace feedline::tool
