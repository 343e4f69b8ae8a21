#include "io/records/record_scanner.h"

#include <array>

#include "base/load.h"
#include "io/records/crc32c_folding.h"
#include "io/records/crc32c_hardware.h"
#include "io/records/crc32c_table.h"

namespace feedline::io {
namespace {

#ifdef FEEDLINE_CRC_TARGET
/// The largest payload in bytes for which three records are verified side by side, one stream each. A longer record
/// fills three streams by itself.
constexpr uint64_t small_record = 1024;

/// Writes three records to `out` and returns true, if three small good records lie at `at`. If anything else lies
/// there, it returns false, and the loop over single records finds out what it is.
template <typename Crc>
FEEDLINE_CRC_INLINE bool take_three(const std::byte* at, const std::byte* end, uint64_t limit,
                                    RecordView* out) noexcept {
  std::array<const std::byte*, 3> payload;
  std::array<size_t, 3> size;
  bool good = true;
  for (size_t k = 0; k < 3; k++) {
    const auto left = static_cast<uint64_t>(end - at);
    if (left < header_bytes) return false;
    size[k] = load<uint64_t>(at);
    if (size[k] < 8 || size[k] > small_record || size[k] > limit || left < size[k] + frame_bytes) return false;
    good &= mask_crc(~Crc::word(size[k])) == load<uint32_t>(at + 8);
    payload[k] = at + header_bytes;
    at = payload[k] + size[k] + footer_bytes;
  }
  const std::array<uint32_t, 3> crc = hardware::update_three(payload, size);
  for (size_t k = 0; k < 3; k++) {
    const auto stored = load<uint32_t>(payload[k] + size[k]);
    good &= mask_crc(~crc[k]) == stored;
    out[k] = {payload[k], static_cast<uint32_t>(size[k]), stored};
  }
  return good;
}
#endif

}  // namespace

template <typename Crc>
RecordScanner::Stop RecordScanner::scan(std::span<RecordView> out, size_t& count) noexcept {
#include "io/records/record_scan_loop.inc"
}

#ifdef FEEDLINE_CRC_TARGET
template <typename Crc>
FEEDLINE_CRC_TARGET RecordScanner::Stop RecordScanner::scan_hardware(std::span<RecordView> out,
                                                                     size_t& count) noexcept {
#include "io/records/record_scan_loop.inc"
}
#endif

#ifdef FEEDLINE_FOLD_TARGET
FEEDLINE_FOLD_TARGET RecordScanner::Stop RecordScanner::scan_folding(std::span<RecordView> out,
                                                                     size_t& count) noexcept {
  using Crc = hardware::Folding;
#include "io/records/record_scan_loop.inc"
}
#endif

RecordScanner::Stop RecordScanner::next(Crc32cPath path, std::span<RecordView> out, size_t& count) noexcept {
#ifdef FEEDLINE_FOLD_TARGET
  if (path == Crc32cPath::folding) return scan_folding(out, count);
#endif
#ifdef FEEDLINE_CRC_TARGET
  if (path == Crc32cPath::three_way) return scan_hardware<hardware::ThreeStreams>(out, count);
  if (path == Crc32cPath::hardware) return scan_hardware<hardware::OneStream>(out, count);
#endif
  static_cast<void>(path);
  return scan<TableStream>(out, count);
}

}  // namespace feedline::io
