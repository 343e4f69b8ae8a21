// Arithmetic modulo the CRC32C polynomial P at compile time. The tables of all paths are made with it.
//
// A 32-bit CRC is a polynomial over GF(2) in reflected order: bit 31 is the coefficient of x^0, bit 0 that of x^31.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace feedline::io {

inline constexpr uint32_t crc32c_polynomial = 0x82f63b78;  // x^32 + x^28 + x^27 + ... + 1, reflected

/// Returns p * x mod P.
constexpr uint32_t times_x(uint32_t p) noexcept { return (p >> 1) ^ ((p & 1) ? crc32c_polynomial : 0); }
/// Returns the q for which q * x = p mod P. There is exactly one, because x is not a factor of P.
constexpr uint32_t over_x(uint32_t p) noexcept { return p & 0x80000000 ? (p ^ crc32c_polynomial) << 1 | 1 : p << 1; }

/// Returns the tables for slicing-by-8. Entry [k][b] is the CRC register after byte b and then k zero bytes, if
/// the register was 0 before.
constexpr std::array<std::array<uint32_t, 256>, 8> make_crc32c_slices() noexcept {
  std::array<std::array<uint32_t, 256>, 8> slices{};
  for (uint32_t b = 0; b < 256; b++) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; bit++) crc = times_x(crc);
    slices[0][b] = crc;
  }
  for (size_t k = 1; k < 8; k++)
    for (size_t b = 0; b < 256; b++) slices[k][b] = (slices[k - 1][b] >> 8) ^ slices[0][slices[k - 1][b] & 255];
  return slices;
}

/// Returns x^exponent mod P.
constexpr uint32_t x_to_the(uint64_t exponent) noexcept {
  uint32_t p = 0x80000000;  // the polynomial 1
  for (; exponent > 0; exponent--) p = times_x(p);
  return p;
}

}  // namespace feedline::io
