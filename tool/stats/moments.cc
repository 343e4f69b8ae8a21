#include "tool/stats/moments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/each_simd_level.h"

namespace feedline::cli {
namespace {

constexpr size_t lanes = 8;  // sums that are independent of one another, so that they are computed side by side

template <typename T>
using Lanes = std::array<T, lanes>;

struct LaneSums {
  Lanes<double> least, most, sum{}, sum_low{}, squares{}, squares_low{};
  Lanes<int64_t> zeros{};
};

void begin(LaneSums& sums) {
  sums.least.fill(std::numeric_limits<double>::infinity());
  sums.most.fill(-std::numeric_limits<double>::infinity());
}

/// Adds whole groups of numbers, one to each lane, with all digits. `values` has groups * lanes numbers.
FEEDLINE_EACH_SIMD_LEVEL void sum_exactly(const double* values, size_t groups, LaneSums& to) {
  LaneSums sums = to;
  for (size_t group = 0; group < groups; group++, values += lanes) {
    for (size_t lane = 0; lane < lanes; lane++) {
      const double x = values[lane];
      sums.least[lane] = x < sums.least[lane] ? x : sums.least[lane];
      sums.most[lane] = x > sums.most[lane] ? x : sums.most[lane];
      sums.zeros[lane] += x == 0;
      const DoubleDouble sum = exact_sum(sums.sum[lane], x);
      sums.sum[lane] = sum.high;
      sums.sum_low[lane] += sum.low;
      const DoubleDouble square = exact_product(x, x), squares = exact_sum(sums.squares[lane], square.high);
      sums.squares[lane] = squares.high;
      sums.squares_low[lane] += squares.low + square.low;
    }
  }
  to = sums;
}

using Eight [[gnu::vector_size(lanes * sizeof(double))]] = double;
using EightCounts [[gnu::vector_size(lanes * sizeof(int64_t))]] = int64_t;

struct Differences {
  Eight least, most, sum{}, squares{};
  EightCounts zeros{};
};

/// Adds the differences of numbers from `pivot`, and their squares, in doubles, eight numbers at a time.
FEEDLINE_EACH_SIMD_LEVEL void sum_differences(const double* values, size_t groups, double pivot, Differences& to) {
  Differences sums = to;
  for (size_t group = 0; group < groups; group++, values += lanes) {
    Eight x;
    std::memcpy(&x, values, sizeof x);
    const Eight difference = x - pivot;
    sums.least = x < sums.least ? x : sums.least;
    sums.most = x > sums.most ? x : sums.most;
    sums.zeros -= x == 0;  // a comparison that holds is -1
    sums.sum += difference;
    sums.squares += difference * difference;
  }
  to = sums;
}

}  // namespace

void Moments::add(std::span<const double> values) {
  const size_t groups = values.size() / lanes;
  if (groups > 0) {
    LaneSums sums;
    begin(sums);
    sum_exactly(values.data(), groups, sums);
    for (size_t lane = 0; lane < lanes; lane++) {
      least = std::min(least, sums.least[lane]);
      most = std::max(most, sums.most[lane]);
      zeros += static_cast<uint64_t>(sums.zeros[lane]);
      sum = sum + exact_sum(sums.sum[lane], sums.sum_low[lane]);
      squares = squares + exact_sum(sums.squares[lane], sums.squares_low[lane]);
    }
    count += groups * lanes;
  }
  for (const double value : values.subspan(groups * lanes)) add(value, 1);
}

bool Moments::add_row(std::span<const double> values) {
  if (values.empty()) return true;
  const double pivot = values.front();
  Differences sums{.least = pivot - Eight{}, .most = pivot - Eight{}};
  sum_differences(values.data(), values.size() / lanes, pivot, sums);
  if (const auto rest = values.last(values.size() % lanes); !rest.empty()) {
    std::array<double, lanes> group;
    group.fill(pivot);  // which changes no sum
    std::ranges::copy(rest, group.begin());
    sum_differences(group.data(), 1, pivot, sums);
    if (pivot == 0) sums.zeros[0] -= static_cast<int64_t>(lanes - rest.size());
  }
  DoubleDouble differences, squared;
  for (size_t lane = 0; lane < lanes; lane++) {
    differences = differences + DoubleDouble{sums.sum[lane], 0};
    squared = squared + DoubleDouble{sums.squares[lane], 0};
  }
  if (!std::isfinite(squared.value())) return false;  // so is the sum if a number is infinite or NaN
  int64_t zeros_of_row = 0;
  for (size_t lane = 0; lane < lanes; lane++) {
    least = std::min(least, sums.least[lane]);
    most = std::max(most, sums.most[lane]);
    zeros_of_row += sums.zeros[lane];
  }
  zeros += static_cast<uint64_t>(zeros_of_row);
  // The sum of p + d is n p + sum d, and that of its square n p^2 + 2 p sum d + sum d^2.
  const auto n = static_cast<double>(values.size());
  sum = sum + exact_product(pivot, n) + differences;
  squares = squares + exact_product(pivot, pivot) * n + differences * (2 * pivot) + squared;
  count += values.size();
  return true;
}

void Moments::add(double value, uint64_t times) {
  if (times == 0) return;
  const auto n = static_cast<double>(times);
  least = std::min(least, value);
  most = std::max(most, value);
  if (value == 0) zeros += times;
  sum = sum + exact_product(value, n);
  squares = squares + exact_product(value, value) * n;
  count += times;
}

void Moments::merge(const Moments& other) {
  count += other.count;
  zeros += other.zeros;
  least = std::min(least, other.least);
  most = std::max(most, other.most);
  sum = sum + other.sum;
  squares = squares + other.squares;
}

double Moments::mean() const noexcept { return (sum / static_cast<double>(count)).value(); }

double Moments::deviation() const noexcept {
  const auto n = static_cast<double>(count);
  const double variance = ((squares + -(square(sum) / n)) / n).value();
  return least == most ? 0 : std::sqrt(std::max(0.0, variance));
}

}  // namespace feedline::cli
