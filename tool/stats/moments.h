// Count, extremes, mean and standard deviation of finite numbers.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "tool/stats/double_double.h"

namespace feedline::tool {

/// How many of some numbers are -1, 0 and 1, if they are nothing else, as those of bit planes, masks and flags.
struct Signs {
  uint64_t negative = 0, zero = 0, positive = 0;

  /// Returns nullopt if one of the numbers is neither -1 nor 0 nor 1. Gives up early on most other numbers. There may
  /// be at most 2^24 numbers.
  static std::optional<Signs> of(std::span<const float> values);
  static std::optional<Signs> of(std::span<const double> values);
};

/// The moments of numbers that are added in any order, by any number of threads and ranks whose results are merged. The
/// sums have about 106 bits, so mean() and deviation() do not depend on how the numbers were dealt to threads and
/// ranks. All numbers must be finite, except those for add_row(). A value type, not thread-safe.
struct Moments {
  uint64_t count = 0, zeros = 0;
  double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();
  DoubleDouble sum, squares;  // the sums of the numbers and of their squares

  /// Adds numbers, each with all its digits.
  void add(std::span<const double> values);
  /// Adds the numbers of a row, faster than add(). There are one or three `parts`, which take turns: number i belongs
  /// to parts[i % parts.size()]. The differences from the first number of each part are summed in doubles, so the
  /// result depends on which numbers are added in one call: add the same row always in the same pieces. Returns false,
  /// and adds nothing, if one of the numbers is not finite, or is so large that its square is not finite.
  [[nodiscard]] static bool add_row(std::span<const float> values, std::span<Moments> parts);
  [[nodiscard]] static bool add_row(std::span<const double> values, std::span<Moments> parts);
  /// Adds a number `times` times.
  void add(double value, uint64_t times);
  void add(const Signs& signs);
  void merge(const Moments& other);

  /// Returns the mean; NaN if the numbers are so large that their sum may not be finite. Precondition: count > 0.
  double mean() const noexcept;
  /// Returns the standard deviation of the whole population, as np.std does; NaN if the square of the
  /// numbers' sum may not be finite, or if all numbers are below about 1e-145, so that their squares lose digits.
  /// Precondition: count > 0.
  double deviation() const noexcept;
};

}  // namespace feedline::tool
