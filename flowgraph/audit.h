// The audit: a sum that tells which samples were delivered, whatever their order.
#pragma once

#include <cstdint>

namespace feedline::flow {

/// SplitMix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
constexpr uint64_t mix64(uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// One sample's part of the sum: `mixed_source` is mix64(number of the source), `record` its number in the source.
constexpr uint64_t audit_of(uint64_t mixed_source, uint64_t record, uint32_t stored_crc) noexcept {
  return mix64(mix64(mixed_source ^ record) ^ stored_crc);
}

}  // namespace feedline::flow
