// Multiplies, divides and rounds integers.
#pragma once

#include <cstdint>

namespace feedline {

/// An integer that can hold the product of any two 64-bit numbers.
__extension__ using Wide = unsigned __int128;

/// Returns a * b / c, rounded down. The result is exact even if a * b needs 128 bits.
/// Preconditions: c is not 0, and the result fits into 64 bits.
constexpr uint64_t mul_div(uint64_t a, uint64_t b, uint64_t c) noexcept {
  return static_cast<uint64_t>(Wide{a} * b / c);
}

/// Returns a / b, rounded up.
constexpr uint64_t div_up(uint64_t a, uint64_t b) noexcept { return a / b + (a % b != 0); }

/// Returns the smallest multiple of `to` that is not less than `value`. Preconditions: `to` is not 0, and
/// value + to - 1 fits into 64 bits.
constexpr uint64_t round_up(uint64_t value, uint64_t to) noexcept { return (value + to - 1) / to * to; }

/// Returns a * b / 2^64, rounded down.
constexpr uint64_t high_product(uint64_t a, uint64_t b) noexcept { return static_cast<uint64_t>(Wide{a} * b >> 64); }

}  // namespace feedline
