// CRC32C (Castagnoli; RFC 3720, appendix B.4), and the way in which TFRecord masks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace feedline::io {

/// The ways to compute a CRC32C, slowest first. All give the same result, bit for bit.
enum class Crc32cPath : uint8_t {
  table,      // tables; for any CPU
  hardware,   // the crc32 instruction of SSE4.2 or ARMv8, over one stream
  three_way,  // the same instruction over three streams at once, joined by carry-less multiplication
  folding,    // carry-less products of 512 bits; needs AVX-512 and VPCLMULQDQ
};

/// Returns whether this CPU has the instructions that `path` needs.
bool supported(Crc32cPath path) noexcept;

/// Returns the fastest path that this CPU supports.
Crc32cPath best_crc32c_path() noexcept;

/// Continues a CRC32C: crc32c_extend(crc32c(a), b) == crc32c(a + b). Uses the fastest path.
uint32_t crc32c_extend(uint32_t crc, std::span<const std::byte> bytes) noexcept;
/// Returns the CRC32C of `bytes`.
inline uint32_t crc32c(std::span<const std::byte> bytes) noexcept { return crc32c_extend(0, bytes); }

/// Continues a CRC32C by the named path, for tests and benchmarks. Precondition: supported(path).
uint32_t crc32c_extend(Crc32cPath path, uint32_t crc, std::span<const std::byte> bytes) noexcept;

/// Masks a CRC as TFRecord does (tensorflow/core/lib/hash/crc32c.h): rotates it and adds a constant. The reason is that
/// a CRC detects errors poorly in data that itself contains CRCs, as a record does whose payload contains records.
constexpr uint32_t mask_crc(uint32_t crc) noexcept { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }
/// Returns the CRC that mask_crc() has masked.
constexpr uint32_t unmask_crc(uint32_t masked) noexcept {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

}  // namespace feedline::io
