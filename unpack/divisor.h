// Divides many numbers by the same number, each by two multiplications. A GPU has no instruction that divides.
#pragma once

#include <cstdint>

#include "unpack/cast.h"

namespace feedline::unpack {

/// A number by which many numbers are divided.
struct Divisor {
  uint32_t value;
  uint32_t high, low;  // the halves of (2^64 - 1) / value, rounded down

  Divisor() = default;
  explicit constexpr Divisor(uint32_t by)
      : value(by),
        high(static_cast<uint32_t>(~uint64_t{0} / by >> 32)),
        low(static_cast<uint32_t>(~uint64_t{0} / by)) {}
};

struct Quotient {
  uint32_t quotient, remainder;
};

/// Returns number / divisor, rounded down, and the remainder. Precondition: number < 2^32 - 1.
///
/// If number = q * divisor + r, then (number + 1) / divisor = q + (r + 1) / divisor. The product that the code computes
/// is less than (number + 1) / divisor, but by less than 1 / divisor, because (number + 1) * divisor < 2^64. So the
/// product is at least q and less than q + 1. Rounded down, it is q.
FEEDLINE_ELEMENT Quotient divide(uint32_t number, const Divisor& divisor) {
  const uint32_t next = number + 1;
  const auto quotient =
      static_cast<uint32_t>((uint64_t{next} * divisor.high + (uint64_t{next} * divisor.low >> 32)) >> 32);
  return {quotient, number - quotient * divisor.value};
}

}  // namespace feedline::unpack
