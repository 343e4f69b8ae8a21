// CRC32C by tables, for any CPU, eight bytes at a time ("slicing-by-8", Kounavis and Berry, 2005).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/load.h"
#include "io/records/crc32c_constants.h"

namespace feedline::io {

inline constexpr auto crc32c_slices = make_crc32c_slices();

/// Computes CRCs by the path Crc32cPath::table. This struct, or that of another path, is the template argument of
/// RecordScanner's loop:
/// * three_records: true if RecordScanner verifies three small records at a time on this path.
/// * update(): returns the CRC register `crc` after `size` more bytes. The register is the complement of the CRC.
/// * word(): returns the register of a new computation after the 8 bytes of `value`.
struct TableStream {
  static constexpr bool three_records = false;
  /// Returns the register after the 8 bytes of `word`.
  static uint32_t step(uint32_t crc, uint64_t word) noexcept {
    word ^= crc;
    uint32_t next = 0;
    for (unsigned i = 0; i < 8; i++) next ^= crc32c_slices[7 - i][(word >> (8 * i)) & 255];
    return next;
  }
  static uint32_t update(uint32_t crc, const std::byte* p, size_t size) noexcept {
    for (; size >= 8; p += 8, size -= 8) crc = step(crc, load<uint64_t>(p));
    for (; size > 0; size--) crc = (crc >> 8) ^ crc32c_slices[0][(crc ^ std::to_integer<uint32_t>(*p++)) & 255];
    return crc;
  }
  static uint32_t word(uint64_t value) noexcept { return step(~uint32_t{0}, value); }
};

}  // namespace feedline::io
