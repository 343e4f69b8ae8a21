// exp and tanh made of additions, multiplications and one division. They give the same bits on every machine, whatever
// its libm, and compilers turn loops over them into vector code. They are exact within 1 ulp (exp) and 3 ulp (tanh).
// Infinities, NaN and signed zeros are treated as in C.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace feedline::flow::elementary {

/// Returns 2^k for a whole k in [-1022, 1023]. The biased exponent of the result is made in the last bits of a sum, and
/// then moved into place.
inline double power_of_two(double k) {
  constexpr double into_last_bits = 0x1.8p52 + 1023;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(k + into_last_bits) << 52);
}

/// Returns the whole number nearest to x, for |x| < 2^51.
inline double nearest_whole(double x) {
  constexpr double no_room_for_fractions = 0x1.8p52;
  return (x + no_room_for_fractions) - no_room_for_fractions;
}

/// Returns exp(r) - 1 for |r| <= ln(2) / 2 by its series; the first term that is left out has r^14, and is below 2^-57.
inline double small_expm1(double r) {
  double sum = 1.0 / 6227020800;  // 13!
  sum = sum * r + 1.0 / 479001600;
  sum = sum * r + 1.0 / 39916800;
  sum = sum * r + 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 1.0 / 2;
  return r + r * r * sum;
}

/// Splits x into k ln(2) + r. ln(2) is used in two parts. The first part has so few bits that its product with k is
/// exact (Cody and Waite, 1980).
struct Reduced {
  double k, r;
  explicit Reduced(double x) : k(nearest_whole(x * 0x1.71547652b82fep0)) {
    r = (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
  }
};

inline double exp(double x) {
  x = x < -1400 ? -1400 : x > 1400 ? 1400 : x;  // outside, exp is 0 or infinity; NaN stays NaN
  const Reduced reduced(x);
  const double half = nearest_whole(reduced.k * 0.5);  // 2^k itself may be out of range
  return (1 + small_expm1(reduced.r)) * power_of_two(half) * power_of_two(reduced.k - half);
}

/// Returns -expm1(-2 |x|) / (expm1(-2 |x|) + 2) with the sign of x. This formula loses no precision near 0.
inline double tanh(double x) {
  double y = -2 * std::fabs(x);
  y = y < -80 ? -80 : y;
  const Reduced reduced(y);
  const double power = power_of_two(reduced.k);
  const double expm1 = power * small_expm1(reduced.r) + (power - 1);
  return std::copysign(expm1 / (expm1 + 2), x);
}

}  // namespace feedline::flow::elementary
