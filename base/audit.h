// The library's 64-bit hash functions, and the audit that is built on them.
//
// An audit is a sum that shows which records were seen, in whatever order they were seen. Each record has a term, a
// hash of where the record lies and what it contains. The sum of a file adds the terms of its records. A sum over
// several files, for instance that of a batch or an epoch, adds for each record its term times the audit_key() of its
// file. All arithmetic is modulo 2^64.
#pragma once

#include <cstdint>
#include <string_view>

namespace feedline {

/// Mixes the bits of `x`: SplitMix64's finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
/// 2014).
constexpr uint64_t mix64(uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Returns the FNV-1a hash (Fowler, Noll, Vo) of `text`, mixed once more by mix64().
constexpr uint64_t hash64(std::string_view text) noexcept {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix64(hash);
}

/// Returns the audit term of one record: a hash of its place in the file and its content. `offset` is where the
/// record's header begins: bytes from the start of the file, or of the inflated stream of a compressed file.
/// `stored_crc` is the payload's masked checksum, as it stands in the file.
constexpr uint64_t audit_term(uint64_t offset, uint32_t stored_crc) noexcept {
  return mix64(mix64(offset) ^ stored_crc);
}

/// Returns the key of file number `file` of source number `source`. In a sum over several files, the audit terms of the
/// file's records are multiplied by this key. A key is odd, because multiplication by an odd number loses no
/// information modulo 2^64.
constexpr uint64_t audit_key(uint64_t source, uint64_t file) noexcept { return mix64(mix64(source) ^ file) | 1; }

}  // namespace feedline
