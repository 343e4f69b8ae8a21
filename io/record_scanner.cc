#include "io/record_scanner.h"

#include <cstring>

#include "io/crc32c_hardware.h"
#include "io/crc32c_table.h"

namespace feedline::io {
namespace {

template <typename T>
__attribute__((always_inline)) inline T load_as(const std::byte* p) noexcept {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

}  // namespace

template <typename Crc>
RecordScanner::Stop RecordScanner::scan(std::span<RecordView> out, size_t& count) noexcept {
#include "io/record_scan_loop.inc"
}

#ifdef FEEDLINE_CRC_TARGET
template <typename Crc>
FEEDLINE_CRC_TARGET RecordScanner::Stop RecordScanner::scan_hardware(std::span<RecordView> out,
                                                                     size_t& count) noexcept {
#include "io/record_scan_loop.inc"
}
#endif

RecordScanner::Stop RecordScanner::next(Crc32cPath path, std::span<RecordView> out, size_t& count) noexcept {
#ifdef FEEDLINE_CRC_TARGET
  if (path == Crc32cPath::three_way) return scan_hardware<hardware::ThreeStreams>(out, count);
  if (path == Crc32cPath::hardware) return scan_hardware<hardware::OneStream>(out, count);
#endif
  static_cast<void>(path);
  return scan<TableStream>(out, count);
}

}  // namespace feedline::io
