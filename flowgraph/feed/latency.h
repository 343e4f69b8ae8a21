// A log-linear histogram of times. Its memory is fixed, and adding an entry takes a few nanoseconds. A quantile is
// exact to 1/16 of its value.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace feedline::flow {

class Latency {
 public:
  void add(std::chrono::nanoseconds time) noexcept {
    const auto ns = static_cast<uint64_t>(std::max<int64_t>(0, time.count()));
    counts_[bucket(ns)]++;
    count_++;
    max_ = std::max(max_, ns);
  }
  /// Returns the time, in microseconds, that a share `q` of the entries does not exceed; 0 if there are no entries.
  double quantile_us(double q) const noexcept {
    const auto wanted = static_cast<uint64_t>(q * static_cast<double>(count_));
    uint64_t seen = 0;
    for (size_t b = 0; b < counts_.size(); b++) {
      seen += counts_[b];
      if (seen > wanted) return static_cast<double>(std::min(upper(b), max_)) / 1e3;
    }
    return max_us();
  }
  /// Returns for each bucket that has entries its upper bound, in microseconds, and how many entries it has.
  std::vector<std::pair<double, uint64_t>> histogram_us() const {
    std::vector<std::pair<double, uint64_t>> buckets;
    for (size_t b = 0; b < counts_.size(); b++)
      if (counts_[b] > 0) buckets.emplace_back(static_cast<double>(std::min(upper(b), max_)) / 1e3, counts_[b]);
    return buckets;
  }
  double max_us() const noexcept { return static_cast<double>(max_) / 1e3; }

 private:
  // There are 16 buckets for each power of two.
  static size_t bucket(uint64_t ns) noexcept {
    if (ns < 16) return ns;
    const int exponent = static_cast<int>(std::bit_width(ns)) - 5;
    return static_cast<size_t>(exponent) * 16 + (ns >> exponent);
  }
  static uint64_t upper(size_t bucket) noexcept {
    if (bucket < 32) return bucket;
    const size_t exponent = bucket / 16 - 1;
    return ((bucket % 16 + 17) << exponent) - 1;
  }

  std::array<uint64_t, 64 * 16> counts_{};
  uint64_t count_ = 0;
  uint64_t max_ = 0;
};

}  // namespace feedline::flow
