// Sums of doubles with twice the digits of a double.
#pragma once

#include <cmath>

namespace feedline::tool {

/// The unevaluated sum of two doubles, of which `low` is at most half a unit in the last place of `high`. It has about
/// 106 bits, so the order in which numbers are added does not show once the sum is rounded to a double.
struct DoubleDouble {
  double high = 0, low = 0;

  double value() const noexcept { return high + low; }
};

/// Returns a + b exactly (Knuth's TwoSum).
inline DoubleDouble exact_sum(double a, double b) noexcept {
  const double sum = a + b, part_of_b = sum - a;
  return {sum, (a - (sum - part_of_b)) + (b - part_of_b)};
}

/// Returns a * b exactly, if nothing overflows or underflows.
inline DoubleDouble exact_product(double a, double b) noexcept {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

inline DoubleDouble operator+(const DoubleDouble& a, const DoubleDouble& b) noexcept {
  const DoubleDouble high = exact_sum(a.high, b.high), low = exact_sum(a.low, b.low);
  const DoubleDouble sum = exact_sum(high.high, high.low + low.high);
  return exact_sum(sum.high, sum.low + low.low);
}
inline DoubleDouble operator-(const DoubleDouble& a) noexcept { return {-a.high, -a.low}; }

inline DoubleDouble operator*(const DoubleDouble& a, double b) noexcept {
  const DoubleDouble product = exact_product(a.high, b);
  return exact_sum(product.high, std::fma(a.low, b, product.low));
}
inline DoubleDouble operator/(const DoubleDouble& a, double b) noexcept {
  const double first = a.high / b;
  const DoubleDouble rest = a + -exact_product(first, b);
  return exact_sum(first, rest.value() / b);
}
/// Returns a squared.
inline DoubleDouble square(const DoubleDouble& a) noexcept {
  const DoubleDouble product = exact_product(a.high, a.high);
  return exact_sum(product.high, std::fma(2 * a.high, a.low, product.low));
}

}  // namespace feedline::tool
