// CRC32C (Castagnoli; RFC 3720 appendix B.4), and TFRecord's masking of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace feedline::io {

/// Ways to compute it, slowest first. Each equals the others bit for bit.
enum class Crc32cPath : uint8_t {
  table,      // everywhere
  hardware,   // the crc32 instruction of SSE4.2 or ARMv8, one stream
  three_way,  // three streams of it at once, joined by carry-less multiplication
  folding,    // carry-less products of 512 bits: AVX-512 with VPCLMULQDQ
};

/// Whether this CPU has it.
bool supported(Crc32cPath path) noexcept;

/// The fastest one it has.
Crc32cPath best_crc32c_path() noexcept;

/// CRC32C of some bytes and those behind them: crc32c(a + b) == crc32c_extend(crc32c(a), b). The fastest path.
uint32_t crc32c_extend(uint32_t crc, std::span<const std::byte> bytes) noexcept;
inline uint32_t crc32c(std::span<const std::byte> bytes) noexcept { return crc32c_extend(0, bytes); }

/// One path by name, for tests and benchmarks. Precondition: supported(path).
uint32_t crc32c_extend(Crc32cPath path, uint32_t crc, std::span<const std::byte> bytes) noexcept;

/// tensorflow/core/lib/hash/crc32c.h: a CRC stored beside data that may itself be checksummed is rotated and offset.
constexpr uint32_t mask_crc(uint32_t crc) noexcept { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }
constexpr uint32_t unmask_crc(uint32_t masked) noexcept {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

}  // namespace feedline::io
