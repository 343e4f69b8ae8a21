// A place in a compressed file from which it can be inflated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace feedline::io {

/// A place in a compressed file from which the rest can be inflated without what lies before it: where a deflate block
/// (RFC 1951, section 3.2.3) begins.
struct SeekPoint {
  uint64_t offset = 0;       // bytes of the inflated stream before the block
  uint64_t bit = 0;          // bits of the file before the block
  uint64_t member_size = 0;  // bytes of the inflated stream since its gzip member, or zlib stream, began
  uint64_t check = 0;        // the CRC32 (gzip) or Adler32 (zlib) of these bytes, 32 bits

  bool operator==(const SeekPoint&) const = default;
};

/// The largest distance of a back-reference in a deflate stream, in bytes. So the block at a seek point refers to at
/// most this many bytes before it, its window.
inline constexpr size_t deflate_window = 32 << 10;

/// A callback that is given each seek point, with its window: the last deflate_window bytes before the point, or fewer
/// if the gzip member has fewer. Returns how many bytes it has kept of the window.
using SeekPointFound = std::function<size_t(const SeekPoint& point, std::span<const std::byte> window)>;

}  // namespace feedline::io
