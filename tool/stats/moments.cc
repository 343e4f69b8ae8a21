#include "tool/stats/moments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/compiled_for.h"

namespace feedline::tool {
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
void sum_exactly(const double* values, size_t groups, LaneSums& to) {
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
using EightFloats [[gnu::vector_size(lanes * sizeof(float))]] = float;
using EightCounts [[gnu::vector_size(lanes * sizeof(int64_t))]] = int64_t;
using EightSmallCounts [[gnu::vector_size(lanes * sizeof(int32_t))]] = int32_t;

/// Sums of numbers, which are added in groups of eight. The group with number g is added to the sums [g % turns].
template <typename Vector, typename Counts, size_t turns>
struct Differences {
  Vector least[turns], most[turns];
  Counts zeros[turns];
  Eight pivots[turns], sum[turns], squares[turns];
};
template <size_t turns>
using FloatDifferences = Differences<EightFloats, EightSmallCounts, turns>;
template <size_t turns>
using DoubleDifferences = Differences<Eight, EightCounts, turns>;

/// Adds numbers, eight at a time. Sums, in doubles, their differences from the pivots, which are the first numbers of
/// the parts. `values` has rounds * turns * lanes numbers.
template <typename Number, typename Vector, typename Counts, size_t turns>
void add_rounds(const Number* values, size_t rounds, Differences<Vector, Counts, turns>& to) {
  Differences<Vector, Counts, turns> sums = to;
  for (size_t round = 0; round < rounds; round++) {
#pragma GCC unroll 3
    for (size_t turn = 0; turn < turns; turn++, values += lanes) {
      Vector x;
      std::memcpy(&x, values, sizeof x);
      sums.least[turn] = x < sums.least[turn] ? x : sums.least[turn];
      sums.most[turn] = x > sums.most[turn] ? x : sums.most[turn];
      sums.zeros[turn] -= x == 0;  // a comparison that holds is -1
      const Eight difference = __builtin_convertvector(x, Eight) - sums.pivots[turn];
      sums.sum[turn] += difference;
      sums.squares[turn] += difference * difference;
    }
  }
  to = sums;
}

/// Implements Moments::add_row() for a number of parts that is known at compile time (`turns`).
template <typename Number, typename Vector, typename Counts, size_t turns>
bool add_row_of(std::span<const Number> values, std::span<Moments> parts, Differences<Vector, Counts, turns> sums) {
  constexpr size_t of_round = turns * lanes;
  const auto part_of = [](size_t turn, size_t lane) { return (turn * lanes + lane) % turns; };
  for (size_t turn = 0; turn < turns; turn++) {
    for (size_t lane = 0; lane < lanes; lane++) {
      const Number pivot = values[part_of(turn, lane)];
      sums.least[turn][lane] = sums.most[turn][lane] = pivot;
      sums.pivots[turn][lane] = static_cast<double>(pivot);
    }
  }
  constexpr auto add = add_rounds<Number, Vector, Counts, turns>;
  compiled_for<add>(simd_level())(values.data(), values.size() / of_round, sums);
  std::array<double, turns> filled{};  // how many zeros only fill up the last round
  if (const auto rest = values.last(values.size() % of_round); !rest.empty()) {
    std::array<Number, of_round> round;
    std::ranges::copy(rest, round.begin());
    for (size_t i = rest.size(); i < of_round; i++) {
      round[i] = values[i % turns];  // its difference from the pivot is 0
      filled[i % turns] += round[i] == 0;
    }
    compiled_for<add>(simd_level())(round.data(), 1, sums);
  }
  std::array<double, turns> differences{}, squares{};
  for (size_t turn = 0; turn < turns; turn++) {
    for (size_t lane = 0; lane < lanes; lane++) {
      differences[part_of(turn, lane)] += sums.sum[turn][lane];
      squares[part_of(turn, lane)] += sums.squares[turn][lane];
    }
  }
  for (const double square : squares)
    if (!std::isfinite(square)) return false;  // also if a number is infinite or NaN
  for (size_t part = 0; part < turns; part++) {
    Moments& to = parts[part];
    double zeros = -filled[part];
    for (size_t i = part; i < of_round; i += turns) {  // the lanes of the part
      const size_t turn = i / lanes, lane = i % lanes;
      to.least = std::min(to.least, static_cast<double>(sums.least[turn][lane]));
      to.most = std::max(to.most, static_cast<double>(sums.most[turn][lane]));
      zeros += static_cast<double>(sums.zeros[turn][lane]);
    }
    const size_t count = values.size() / turns;
    to.zeros += static_cast<uint64_t>(zeros);
    to.count += count;
    // With the pivot p and the differences d, the n numbers p + d have the sum n p + sum d. Their squares have the sum
    // n p^2 + 2 p sum d + sum d^2.
    const auto n = static_cast<double>(count);
    const auto pivot = static_cast<double>(values[part]);
    const DoubleDouble sum{differences[part], 0};
    to.sum = to.sum + exact_product(pivot, n) + sum;
    to.squares = to.squares + exact_product(pivot, pivot) * n + sum * (2 * pivot) + DoubleDouble{squares[part], 0};
  }
  return true;
}

constexpr size_t vector_bytes = 64;

/// The sums of numbers and of their magnitudes, one for each lane of a vector.
template <typename Number>
struct SignSums {
  using Vector [[gnu::vector_size(vector_bytes)]] = Number;
  Vector sum, magnitudes;
};

/// Adds `vectors` vectors of numbers. Returns whether all of them are -1, 0 or 1.
template <typename Number>
bool add_signs(const Number* values, size_t vectors, SignSums<Number>& to) {
  using Vector = typename SignSums<Number>::Vector;
  using Bits [[gnu::vector_size(vector_bytes)]] = std::conditional_t<sizeof(Number) == 4, uint32_t, uint64_t>;
  constexpr size_t in_vector = vector_bytes / sizeof(Number);
  SignSums<Number> sums = to;
  Bits differ = {};
  for (; vectors > 0; vectors--, values += in_vector) {
    Bits bits;
    std::memcpy(&bits, values, sizeof bits);
    const Vector x = reinterpret_cast<Vector>(bits);
    const Vector magnitude = reinterpret_cast<Vector>(bits << 1 >> 1);
    differ |= reinterpret_cast<Bits>(magnitude * magnitude) ^ reinterpret_cast<Bits>(magnitude);
    differ |= reinterpret_cast<Bits>(magnitude) & ~reinterpret_cast<Bits>(Vector{} + 1);  // also infinity, and NaN
    sums.sum += x;
    sums.magnitudes += magnitude;
  }
  to = sums;
  uint64_t any = 0;
  for (size_t lane = 0; lane < in_vector; lane++) any |= differ[lane];
  return any == 0;
}

/// Implements Signs::of().
template <typename Number>
std::optional<Signs> signs_of(std::span<const Number> values) {
  constexpr size_t in_vector = vector_bytes / sizeof(Number), few = 8;  // vectors after which it may give up
  constexpr auto add = add_signs<Number>;
  const auto compiled = compiled_for<add>(simd_level());
  SignSums<Number> sums{};
  for (auto left = values; !left.empty();) {
    size_t vectors = left.size() / in_vector;
    if (left.size() == values.size()) vectors = std::min(vectors, few);
    std::array<Number, in_vector> last{};  // with fewer numbers, filled up by zeros
    if (vectors == 0) std::ranges::copy(left, last.begin());
    if (!compiled(vectors == 0 ? last.data() : left.data(), std::max<size_t>(vectors, 1), sums)) return std::nullopt;
    left = left.subspan(vectors == 0 ? left.size() : vectors * in_vector);
  }
  int64_t sum = 0, magnitudes = 0;
  for (size_t lane = 0; lane < in_vector; lane++) {
    sum += static_cast<int64_t>(sums.sum[lane]);
    magnitudes += static_cast<int64_t>(sums.magnitudes[lane]);
  }
  const auto both = static_cast<uint64_t>(magnitudes), positive = static_cast<uint64_t>((magnitudes + sum) / 2);
  return Signs{.negative = both - positive, .zero = values.size() - both, .positive = positive};
}

/// Returns whether no sum of `count` numbers can overflow, in whatever order they are added. `largest` is the magnitude
/// of the largest of them.
bool adds_up(double largest, double count) { return largest < std::numeric_limits<double>::max() / 4 / count; }

}  // namespace

void Moments::add(std::span<const double> values) {
  const size_t groups = values.size() / lanes;
  if (groups > 0) {
    LaneSums sums;
    begin(sums);
    compiled_for<sum_exactly>(simd_level())(values.data(), groups, sums);
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

std::optional<Signs> Signs::of(std::span<const float> values) { return signs_of(values); }
std::optional<Signs> Signs::of(std::span<const double> values) { return signs_of(values); }

bool Moments::add_row(std::span<const float> values, std::span<Moments> parts) {
  if (values.empty()) return true;
  if (const auto signs = parts.size() == 1 ? Signs::of(values) : std::nullopt) return parts[0].add(*signs), true;
  return parts.size() == 1 ? add_row_of(values, parts, FloatDifferences<1>{})
                           : add_row_of(values, parts, FloatDifferences<3>{});
}

bool Moments::add_row(std::span<const double> values, std::span<Moments> parts) {
  if (values.empty()) return true;
  return parts.size() == 1 ? add_row_of(values, parts, DoubleDifferences<1>{})
                           : add_row_of(values, parts, DoubleDifferences<3>{});
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

void Moments::add(const Signs& signs) {
  const auto extend = [&](uint64_t times, double value) {
    if (times == 0) return;
    least = std::min(least, value);
    most = std::max(most, value);
  };
  extend(signs.negative, -1);
  extend(signs.zero, 0);
  extend(signs.positive, 1);
  count += signs.negative + signs.zero + signs.positive;
  zeros += signs.zero;
  const auto positive = static_cast<double>(signs.positive), negative = static_cast<double>(signs.negative);
  sum = sum + DoubleDouble{positive - negative, 0};
  squares = squares + DoubleDouble{positive + negative, 0};
}

void Moments::merge(const Moments& other) {
  count += other.count;
  zeros += other.zeros;
  least = std::min(least, other.least);
  most = std::max(most, other.most);
  sum = sum + other.sum;
  squares = squares + other.squares;
}

double Moments::mean() const noexcept {
  const auto n = static_cast<double>(count);
  if (!adds_up(std::max(std::abs(least), std::abs(most)), n)) return std::numeric_limits<double>::quiet_NaN();
  return (sum / n).value();
}

double Moments::deviation() const noexcept {
  if (least == most) return 0;
  const auto n = static_cast<double>(count);
  const double largest = std::max(std::abs(least), std::abs(most));
  constexpr double smallest = 0x1p-480;  // the lower half of its square still has all its digits
  if (largest < smallest || !adds_up(largest * largest, n * n)) return std::numeric_limits<double>::quiet_NaN();
  const double variance = ((squares + -(square(sum) / n)) / n).value();
  return std::sqrt(std::max(0.0, variance));
}

}  // namespace feedline::tool
