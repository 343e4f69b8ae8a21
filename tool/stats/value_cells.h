// Counts how often each value occurs: exactly while there are few values, otherwise in cells (ranges of values) that
// are as narrow as a fixed amount of memory allows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/rank_message.h"

namespace feedline::tool {

/// Counts numbers by value. While there are at most `most` different values, each has a cell of its own. With more, a
/// cell has the values that agree in sign, exponent and the first bits_ bits after the leading 1: as many bits as leave
/// at most `most` cells. This number of bits follows only from the set of the values. So the cells depend neither on
/// the order in which the numbers are added nor on how many objects count them: merged objects have the cells that one
/// object would have. Not thread-safe.
///
/// The numbers are all int64 or all finite doubles; the callers say which by the type that they add.
class ValueCells {
 public:
  static constexpr size_t most = 4096;

  /// `integers`: the numbers are int64.
  explicit ValueCells(bool integers) : integers_(integers) {}

  void add(std::span<const int64_t> values);
  void add(std::span<const double> values);
  /// Counts a number `times` times.
  void add(int64_t value, uint64_t times);
  void add(double value, uint64_t times);
  void merge(const ValueCells& other);

  /// One or more values, and how many of the numbers have one of these values.
  struct Cell {
    uint64_t count = 0;
    bool one_value = true;  // all numbers of the cell are the same
    // The value or, if there are several, the middle of the cell. Only one of the two is set: `integer` if the numbers
    // are int64, `number` if they are doubles.
    int64_t integer = 0;
    double number = 0;
  };
  /// Returns the cells in ascending order of their values.
  std::vector<Cell> cells() const;
  /// Returns whether every cell has one value.
  bool exact() const noexcept;
  /// Returns the maximum difference between the middle of a cell and a value of the cell, as a share of the value; 0 if
  /// every cell has one value.
  double relative_error() const noexcept;

  /// Returns how many numbers have been counted.
  uint64_t total() const noexcept;
  /// Returns whether all known numbers lie in [from, to]. Of a cell with several values only one value is known.
  bool lie_in(int64_t from, int64_t to) const noexcept;
  bool lie_in(double from, double to) const noexcept;

  void put(MessageWriter& message) const;
  /// Reads what put() has written. `integers` is as for the constructor. Throws Error bad_pipeline if the message does
  /// not hold cells of such numbers.
  static ValueCells get(MessageReader& message, bool integers);

 private:
  struct Bucket {
    uint64_t key = 0, value = 0, count = 0;  // a count of 0: the bucket is free. Numbers are stored as their 64 bits
    uint64_t mixed = 0;                      // 1: the cell has several values
  };
  static constexpr int all_bits = 64;

  uint64_t key_of(uint64_t code) const noexcept;
  template <typename Number>
  void count_each(std::span<const Number> values);
  void count(const Bucket& cell);
  void insert(const Bucket& cell);
  void rebuild(size_t size);
  void coarsen();

  bool integers_;
  int bits_ = all_bits;
  size_t used_ = 0;
  // A hash table with open addressing. The number of buckets is a power of two.
  std::vector<Bucket> buckets_ = std::vector<Bucket>(64);
};

}  // namespace feedline::tool
