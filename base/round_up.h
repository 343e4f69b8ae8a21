// Rounds sizes up to a multiple.
#pragma once

#include <cstdint>

namespace feedline {

/// Returns the smallest multiple of `to` that is not less than `value`. Precondition: `to` is not 0.
constexpr uint64_t round_up(uint64_t value, uint64_t to) noexcept { return (value + to - 1) / to * to; }

}  // namespace feedline
