// The hash of everything that is told apart by a number, and the audit made of it: sums that tell which records were
// seen, whatever their order. A record's term says where it lies and what
// is in it; a file's sum adds its terms, and a delivery adds, for each file, key * (the delivered terms of that file).
// All of it mod 2^64.
#pragma once

#include <cstdint>
#include <string_view>

namespace feedline {

/// SplitMix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
constexpr uint64_t mix64(uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Of a text: FNV-1a (Fowler, Noll, Vo), mixed once more.
constexpr uint64_t hash64(std::string_view text) noexcept {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix64(hash);
}

/// `offset`: of the record's header in the (inflated) file; `stored_crc`: masked, as it stands there.
constexpr uint64_t audit_term(uint64_t offset, uint32_t stored_crc) noexcept {
  return mix64(mix64(offset) ^ stored_crc);
}

/// Odd, so that no term of a file is lost in the product. `file`: its number in the source.
constexpr uint64_t audit_key(uint64_t source, uint64_t file) noexcept { return mix64(mix64(source) ^ file) | 1; }

}  // namespace feedline
