// Bytes in memory -> verified records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "feedline/error.h"
#include "io/records/crc32c.h"

namespace feedline::io {

inline constexpr size_t header_bytes = 12;  // length and its CRC
inline constexpr size_t footer_bytes = 4;   // the payload's CRC
inline constexpr size_t frame_bytes = header_bytes + footer_bytes;

/// A verified record; the payload lies where it was scanned.
struct RecordView {
  const std::byte* data = nullptr;
  uint32_t size = 0;        // record_limit is at most 4 GiB - 1
  uint32_t stored_crc = 0;  // masked, as in the file
};

/// Walks the records that lie one after another in `bytes`. Every record it hands out has passed both checksums.
/// No allocation; about the speed of CRC32C.
class RecordScanner {
 public:
  enum class Stop : uint8_t {
    full,        // `out` is full; call again
    end,         // the bytes end behind a record
    incomplete,  // the bytes end inside a record: position() is its start, wanted() its whole size if known, else 0
    error,       // damage() says what is wrong with the record at position(); of bad_data_crc wanted() is its size
  };

  RecordScanner() = default;
  /// record_limit: a longer payload is record_too_large.
  RecordScanner(std::span<const std::byte> bytes, uint64_t record_limit) noexcept
      : bytes_(bytes), limit_(record_limit < UINT32_MAX ? record_limit : UINT32_MAX) {}

  /// Fills `out` from its front; `count` says how far. Records before a stop are good and delivered.
  Stop next(std::span<RecordView> out, size_t& count) noexcept { return next(best_crc32c_path(), out, count); }
  /// With one path by name, for tests and benchmarks. Precondition: supported(path).
  Stop next(Crc32cPath path, std::span<RecordView> out, size_t& count) noexcept;

  /// Start of the record not yet handed out, in bytes from the front of the span.
  size_t position() const noexcept { return position_; }
  uint64_t wanted() const noexcept { return wanted_; }
  /// bad_length_crc, bad_data_crc or record_too_large.
  Category damage() const noexcept { return damage_; }
  /// Goes on at another place of the span, behind damage say.
  void seek(size_t position) noexcept { position_ = position; }

 private:
  template <typename Crc>
  Stop scan(std::span<RecordView> out, size_t& count) noexcept;
  template <typename Crc>
  Stop scan_hardware(std::span<RecordView> out, size_t& count) noexcept;
  Stop scan_folding(std::span<RecordView> out, size_t& count) noexcept;

  std::span<const std::byte> bytes_;
  uint64_t limit_ = 0;
  size_t position_ = 0;
  uint64_t wanted_ = 0;
  Category damage_ = Category::bad_length_crc;
};

}  // namespace feedline::io
