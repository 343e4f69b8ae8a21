// Products of large numbers, and shares of them.
#pragma once

#include <cstdint>

namespace feedline::flow {

/// Holds every product of two numbers of 64 bits.
__extension__ using Wide = unsigned __int128;

/// a * b / c, rounded down, exact where a * b needs 128 bits. Precondition: the result has 64.
constexpr uint64_t mul_div(uint64_t a, uint64_t b, uint64_t c) noexcept {
  return static_cast<uint64_t>(Wide{a} * b / c);
}

/// a * b / 2^64, rounded down.
constexpr uint64_t high_product(uint64_t a, uint64_t b) noexcept { return static_cast<uint64_t>(Wide{a} * b >> 64); }

}  // namespace feedline::flow
