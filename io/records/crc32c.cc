#include "io/records/crc32c.h"

#include "io/records/crc32c_folding.h"
#include "io/records/crc32c_hardware.h"
#include "io/records/crc32c_table.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace feedline::io {
namespace {

using Update = uint32_t (*)(uint32_t crc, const std::byte* p, size_t size) noexcept;

#ifdef FEEDLINE_CRC_TARGET
FEEDLINE_CRC_TARGET uint32_t one_stream(uint32_t crc, const std::byte* p, size_t size) noexcept {
  return hardware::OneStream::update(crc, p, size);
}
FEEDLINE_CRC_TARGET uint32_t three_streams(uint32_t crc, const std::byte* p, size_t size) noexcept {
  return hardware::ThreeStreams::update(crc, p, size);
}
#endif
#ifdef FEEDLINE_FOLD_TARGET
FEEDLINE_FOLD_TARGET uint32_t folding(uint32_t crc, const std::byte* p, size_t size) noexcept {
  return hardware::Folding::update(crc, p, size);
}
#endif

Update update_by(Crc32cPath path) noexcept {
#ifdef FEEDLINE_CRC_TARGET
  if (path == Crc32cPath::hardware) return one_stream;
  if (path == Crc32cPath::three_way) return three_streams;
#endif
#ifdef FEEDLINE_FOLD_TARGET
  if (path == Crc32cPath::folding) return folding;
#endif
  static_cast<void>(path);
  return TableStream::update;
}

}  // namespace

bool supported(Crc32cPath path) noexcept {
  switch (path) {
    case Crc32cPath::table:
      return true;
#if defined(__x86_64__)
    case Crc32cPath::hardware:
      return __builtin_cpu_supports("sse4.2");
    case Crc32cPath::three_way:
      return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    case Crc32cPath::folding:
      return supported(Crc32cPath::three_way) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("vpclmulqdq");
#elif defined(__aarch64__) && defined(__linux__)
    case Crc32cPath::hardware:
      return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
    case Crc32cPath::three_way:
      return (getauxval(AT_HWCAP) & HWCAP_CRC32) && (getauxval(AT_HWCAP) & HWCAP_PMULL);
#endif
    default:
      return false;
  }
}

Crc32cPath best_crc32c_path() noexcept {
  static const Crc32cPath best = supported(Crc32cPath::folding)     ? Crc32cPath::folding
                                 : supported(Crc32cPath::three_way) ? Crc32cPath::three_way
                                 : supported(Crc32cPath::hardware)  ? Crc32cPath::hardware
                                                                    : Crc32cPath::table;
  return best;
}

uint32_t crc32c_extend(uint32_t crc, std::span<const std::byte> bytes) noexcept {
  static const Update update = update_by(best_crc32c_path());
  return ~update(~crc, bytes.data(), bytes.size());
}

uint32_t crc32c_extend(Crc32cPath path, uint32_t crc, std::span<const std::byte> bytes) noexcept {
  return ~update_by(path)(~crc, bytes.data(), bytes.size());
}

}  // namespace feedline::io
