// Stratified draws: numbers in random order, where each number comes a given number of times, evenly spread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/mul_div.h"

namespace feedline::flow {

/// A sequence in which number s comes amounts[s] times. The numbers are ordered by a time, which runs from 0 to 1 over
/// the whole sequence. For number s this time is cut into amounts[s] equal parts, and in each of these parts the number
/// comes once, at a random moment. For example, with amounts of 4 and 2:
///
///   number 0  |   x   | x     |     x |  x    |
///   number 1  |          y    |y              |      gives the sequence 0 0 1 1 0 0
///
/// So in any stretch of this time, every number comes as often as its share of the stretch says, to within two. In a
/// stretch of the sequence the difference may be a little greater, because the stretch's time may differ from its
/// length by two for each number.
class Stratified {
 public:
  /// Amounts are at most 2^40.
  Stratified(std::vector<uint64_t> amounts, uint64_t key);

  bool ended() const noexcept { return next_draws_.empty(); }
  /// Returns the next number of the sequence. Precondition: not ended.
  uint32_t next();

 private:
  /// The next moment at which a number comes.
  struct NextDraw {
    uint64_t time = 0;
    uint32_t number = 0;
    /// Reversed, so that the top of the heap is the earliest draw.
    bool operator<(const NextDraw& other) const noexcept {
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  // The sequence takes the time [0, 1), in which each number has as many parts as its amount. Times are stored in units
  // of 2^-64.

  /// Returns the time at which part `part` of the number begins.
  uint64_t begin(uint32_t number, uint64_t part) const noexcept;
  /// Returns the time at which the number comes in its part `part`.
  uint64_t time(uint32_t number, uint64_t part) const noexcept;

  std::vector<uint64_t> amounts_, drawn_;  // for each number, how often it comes in all, and has come so far
  std::vector<uint64_t> keys_;
  std::vector<Wide> lengths_;         // for each number, the length of its parts: fractions of 2^128
  std::vector<NextDraw> next_draws_;  // a heap: the next draw of each number that comes again
};

}  // namespace feedline::flow
