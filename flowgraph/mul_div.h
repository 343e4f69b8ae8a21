// Shares of large numbers.
#pragma once

#include <cstdint>

namespace feedline::flow {

/// a * b / c, rounded down, exact where a * b needs 128 bits. Precondition: the result has 64.
constexpr uint64_t mul_div(uint64_t a, uint64_t b, uint64_t c) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b / c);
}

}  // namespace feedline::flow
