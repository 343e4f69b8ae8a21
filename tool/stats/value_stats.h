// Statistics of a stream of numbers of one type.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/rank_message.h"
#include "feedline/tensor.h"
#include "tool/stats/moments.h"
#include "tool/stats/value_cells.h"

namespace feedline::tool {

/// Collects the moments of numbers, and counts how often each value occurs. A float that is not finite is counted, and
/// is left out of everything else. Objects of the same dtype can be merged; the result does not depend on which object
/// was given which numbers. Not thread-safe.
class ValueStats {
 public:
  /// The form in which add() takes the numbers of a dtype.
  enum class Form : uint8_t { bytes, integers, floats };
  static Form form_of(DType dtype) noexcept;

  explicit ValueStats(DType dtype);

  Form form() const noexcept { return form_; }

  /// For Form::bytes: adds elements of one byte. The `parts` take turns: byte i belongs to parts[i % parts.size()].
  static void add(std::span<const uint8_t> values, std::span<ValueStats> parts);
  /// For Form::integers: adds numbers.
  void add(std::span<const int64_t> values);
  /// For Form::floats: adds numbers.
  void add(std::span<const double> values);
  /// For Form::floats: adds numbers that have been summed, without counting them by value.
  void add(const Moments& moments) { moments_.merge(moments); }
  /// For Form::floats: adds numbers without counting them by value.
  void add_uncounted(std::span<const double> values) { moments_.add(finite(values)); }
  /// For Form::floats: counts numbers by value that one of the two functions above has added. Numbers that are not
  /// finite are left out.
  void count(std::span<const double> values);
  void merge(const ValueStats& other);

  // What follows is complete after settle(). put() settles, too.
  void settle();
  const Moments& moments() const noexcept { return moments_; }
  const ValueCells& cells() const noexcept { return cells_; }
  uint64_t nans() const noexcept { return nans_; }
  uint64_t infinities() const noexcept { return infinities_; }
  // The extremes of integers, exactly.
  int64_t least_integer() const noexcept { return least_; }
  int64_t most_integer() const noexcept { return most_; }

  void put(MessageWriter& message);
  void get(MessageReader& message);

 private:
  /// Returns the finite numbers. Counts the others in nans_ and infinities_.
  std::span<const double> finite(std::span<const double> values);
  void count_bytes(std::span<const uint8_t> values);

  Form form_;
  bool signed_bytes_;
  Moments moments_;
  ValueCells cells_;
  uint64_t nans_ = 0, infinities_ = 0;
  int64_t least_ = std::numeric_limits<int64_t>::max(), most_ = std::numeric_limits<int64_t>::min();
  // Counts of each byte since settle(), in four tables. Neighbouring bytes go to different tables, so that an increment
  // need not wait for the one before it if both bytes are equal.
  std::array<std::array<uint64_t, 256>, 4> of_bytes_{};
  std::vector<double> finite_;  // the finite numbers of a call, if some are not finite
};

}  // namespace feedline::tool
