// Finds and verifies the records that lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "feedline/error.h"
#include "io/records/crc32c.h"

namespace feedline::io {

inline constexpr size_t header_bytes = 12;  // the length of the payload, and the CRC of this length
inline constexpr size_t footer_bytes = 4;   // the CRC of the payload
inline constexpr size_t frame_bytes = header_bytes + footer_bytes;

/// A record that has passed both checksums. Its payload lies in the memory that was scanned.
struct RecordView {
  const std::byte* data = nullptr;  // the payload
  uint32_t size = 0;                // bytes of the payload; 32 bits suffice, because record_limit is at most 4 GiB - 1
  uint32_t stored_crc = 0;          // the masked CRC of the payload, as it stands in the file
};

/// Walks over records that lie one after another in memory. Every record that it hands out has passed both checksums.
/// It allocates nothing, and runs about as fast as CRC32C itself.
class RecordScanner {
 public:
  enum class Stop : uint8_t {
    full,        // `out` is full; call again
    end,         // the bytes end where a record ends
    incomplete,  // the bytes end inside a record: position() is its start, wanted() its whole size if known, else 0
    error,       // damage() says what is wrong with the record at position(); with bad_data_crc wanted() is its size
  };

  /// Scans `bytes`, which must outlive the scanner and its records. A payload of more than `record_limit` bytes is
  /// record_too_large. A limit above 4 GiB - 1 means 4 GiB - 1.
  RecordScanner(std::span<const std::byte> bytes, uint64_t record_limit) noexcept
      : bytes_(bytes), limit_(record_limit < UINT32_MAX ? record_limit : UINT32_MAX) {}

  /// Fills `out` with the next records and sets `count` to their number. Returns why it stopped. All good records
  /// before the place at which it stopped are in `out`.
  Stop next(std::span<RecordView> out, size_t& count) noexcept { return next(best_crc32c_path(), out, count); }
  /// Fills `out` in the same way, but computes the checksums by the path `path`. For tests and benchmarks.
  /// Precondition: supported(path).
  Stop next(Crc32cPath path, std::span<RecordView> out, size_t& count) noexcept;

  /// Returns the place of the first record that was not handed out yet, in bytes from the start of the span.
  size_t position() const noexcept { return position_; }
  /// Returns the size in bytes of the record at position(), with header and footer, as Stop explains.
  uint64_t wanted() const noexcept { return wanted_; }
  /// Returns bad_length_crc, bad_data_crc or record_too_large. Precondition: next() has returned Stop::error.
  Category damage() const noexcept { return damage_; }
  /// Makes the next call of next() continue at this position of the span, for instance after damage.
  void seek(size_t position) noexcept { position_ = position; }

 private:
  template <typename Crc>
  Stop scan(std::span<RecordView> out, size_t& count) noexcept;
  template <typename Crc>
  Stop scan_hardware(std::span<RecordView> out, size_t& count) noexcept;
  Stop scan_folding(std::span<RecordView> out, size_t& count) noexcept;

  std::span<const std::byte> bytes_;
  uint64_t limit_;
  size_t position_ = 0;
  uint64_t wanted_ = 0;
  Category damage_ = Category::bad_length_crc;
};

}  // namespace feedline::io
