// Numbers drawn in random order, each as often as it is told, and spread evenly.
#pragma once

#include <cstdint>
#include <vector>

#include "base/mul_div.h"

namespace feedline::flow {

/// A sequence in which number s comes amounts[s] times. Its time is cut into amounts[s] equal parts, and in each of
/// them number s comes once, at a random moment: so any stretch of the sequence has its share of every number, within
/// two. Any place of it is known at once.
class Stratified {
 public:
  /// From `position` of the sequence on. Amounts are at most 2^40. O(numbers * 64).
  Stratified(std::vector<uint64_t> amounts, uint64_t key, uint64_t position);

  bool ended() const noexcept { return next_draws_.empty(); }
  /// Precondition: not ended.
  uint32_t next();
  /// Of each number, how many came before the next one.
  const std::vector<uint64_t>& drawn() const noexcept { return drawn_; }

 private:
  struct NextDraw {
    uint64_t time = 0;
    uint32_t number = 0;
    /// The heap's top is the first.
    bool operator<(const NextDraw& other) const noexcept {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  /// A number's parts: when one begins, and when the number comes in it. Times are fractions of 2^64.
  uint64_t begin(uint32_t number, uint64_t part) const noexcept;
  uint64_t time(uint32_t number, uint64_t part) const noexcept;
  uint64_t drawn_before(uint32_t number, uint64_t time) const noexcept;

  std::vector<uint64_t> amounts_, drawn_;
  std::vector<uint64_t> keys_;
  std::vector<Wide> lengths_;         // of the parts: fractions of 2^128
  std::vector<NextDraw> next_draws_;  // a heap: the next of each number that has one
};

}  // namespace feedline::flow
