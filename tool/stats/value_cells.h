// How often each value comes: exactly while there are few values, otherwise in cells as narrow as a fixed amount of
// memory allows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/rank_message.h"

namespace feedline::tool {

/// Counts numbers by value. While there are at most `most` different values, each has a cell of its own. With more, a
/// cell has the values that agree in sign, exponent and the first bits() bits after the first digit that is not 0: as
/// many bits as leave at most `most` cells. This number of bits follows only from the set of the values. So the cells
/// are the same in whatever order the numbers are added and however many objects counted them, and merged objects have
/// the cells that one object would have. Not thread-safe.
///
/// The numbers are all int64 or all finite doubles; the callers say which by the type that they add.
class ValueCells {
 public:
  static constexpr size_t most = 4096;

  /// `integers`: the numbers are int64.
  explicit ValueCells(bool integers) : integers_(integers) {}

  void add(std::span<const int64_t> values);
  void add(std::span<const double> values);
  /// Counts an int64 `times` times.
  void add(int64_t value, uint64_t times);
  void merge(const ValueCells& other);

  /// Some values and how many of the numbers have them.
  struct Cell {
    uint64_t count = 0;
    bool one_value = true;  // all numbers of the cell are the same
    // The value, or if there are several the middle of the cell. `integer` is exact; `number` is rounded if it is not
    // small. Only one of the two is set, by the type of the numbers.
    int64_t integer = 0;
    double number = 0;
  };
  /// Returns the cells in ascending order of their values.
  std::vector<Cell> cells() const;
  /// Returns whether every cell has one value.
  bool exact() const noexcept;
  /// Returns the most by which a cell's middle can differ from a value of the cell, as a part of the value; 0 if every
  /// cell has one value.
  double relative_error() const noexcept;

  /// Returns how many numbers have been counted.
  uint64_t total() const noexcept;
  /// Returns whether no number is known to lie outside of [from, to].
  bool lie_in(int64_t from, int64_t to) const noexcept;
  bool lie_in(double from, double to) const noexcept;

  void put(MessageWriter& message) const;
  /// `integers`: as for the constructor. Throws Error bad_pipeline if the message holds no such cells.
  static ValueCells get(MessageReader& message, bool integers);

 private:
  struct Bucket {
    uint64_t key = 0, value = 0, count = 0;  // a count of 0: the bucket is free. Numbers are stored as their 64 bits
    uint64_t mixed = 0;                      // 1: the cell has several values
  };
  static constexpr int all_bits = 64;

  uint64_t key_of(uint64_t code) const noexcept;
  void count(const Bucket& cell);
  void insert(const Bucket& cell);
  void rebuild(size_t size);
  void coarsen();

  bool integers_;
  int bits_ = all_bits;
  size_t used_ = 0;
  std::vector<Bucket> buckets_ = std::vector<Bucket>(64);  // an open hash table; a power of two of buckets
};

}  // namespace feedline::tool
