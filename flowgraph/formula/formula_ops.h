// Defines what each operation of a formula does to one row. The block evaluator, the row evaluator and constant folding
// all use these functions, so that they cannot disagree.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "flowgraph/formula/elementary.h"

namespace feedline::flow::ops {

// `failed` becomes nonzero if a row has no result. Integer sums are computed with unsigned numbers, for which overflow
// is defined. They are computed without branches, so that compilers can vectorise loops over them.
inline int64_t wrap(uint64_t bits) { return static_cast<int64_t>(bits); }
inline uint64_t bits(int64_t value) { return static_cast<uint64_t>(value); }

struct AddInt {
  static int64_t of(int64_t a, int64_t b, uint64_t& failed) {
    const uint64_t sum = bits(a) + bits(b);
    failed |= ((bits(a) ^ sum) & (bits(b) ^ sum)) >> 63;
    return wrap(sum);
  }
};
struct SubtractInt {
  static int64_t of(int64_t a, int64_t b, uint64_t& failed) {
    const uint64_t difference = bits(a) - bits(b);
    failed |= ((bits(a) ^ bits(b)) & (bits(a) ^ difference)) >> 63;
    return wrap(difference);
  }
};
struct MultiplyInt {
  static int64_t of(int64_t a, int64_t b, uint64_t& failed) {
    int64_t product = 0;
    failed |= __builtin_mul_overflow(a, b, &product) ? 1 : 0;
    return product;
  }
};
struct NegateInt {
  static int64_t of(int64_t a, uint64_t& failed) { return SubtractInt::of(0, a, failed); }
};
struct AbsInt {
  static int64_t of(int64_t a, uint64_t& failed) {
    failed |= a == std::numeric_limits<int64_t>::min() ? 1 : 0;
    const uint64_t sign = a < 0 ? ~uint64_t{0} : 0;
    return wrap((bits(a) ^ sign) - sign);
  }
};
struct MinInt {
  static int64_t of(int64_t a, int64_t b, uint64_t&) { return a < b ? a : b; }
};
struct MaxInt {
  static int64_t of(int64_t a, int64_t b, uint64_t&) { return a < b ? b : a; }
};
struct ModInt {
  static int64_t of(int64_t a, int64_t b, uint64_t& failed) {
    if (b == 0 || b == -1) {  // the CPU's division traps if it divides the smallest int64 by -1
      failed |= b == 0 ? 1 : 0;
      return 0;
    }
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
};
struct LessInt {
  static int64_t of(int64_t a, int64_t b, uint64_t&) { return a < b ? 1 : 0; }
};
struct LessEqualInt {
  static int64_t of(int64_t a, int64_t b, uint64_t&) { return a <= b ? 1 : 0; }
};
struct EqualInt {
  static int64_t of(int64_t a, int64_t b, uint64_t&) { return a == b ? 1 : 0; }
};
struct And {
  static int64_t of(int64_t a, int64_t b, uint64_t&) { return (a != 0 ? 1 : 0) & (b != 0 ? 1 : 0); }
};
struct Or {
  static int64_t of(int64_t a, int64_t b, uint64_t&) { return (a | b) != 0 ? 1 : 0; }
};
struct Not {
  static int64_t of(int64_t a, uint64_t&) { return a == 0 ? 1 : 0; }
};
struct ToFloat {
  static double of(int64_t a, uint64_t&) { return static_cast<double>(a); }
};

struct Add {
  static double of(double a, double b, uint64_t&) { return a + b; }
};
struct Subtract {
  static double of(double a, double b, uint64_t&) { return a - b; }
};
struct Multiply {
  static double of(double a, double b, uint64_t&) { return a * b; }
};
struct Divide {
  static double of(double a, double b, uint64_t&) { return a / b; }
};
struct Negate {
  static double of(double a, uint64_t&) { return -a; }
};
struct Abs {
  static double of(double a, uint64_t&) { return std::fabs(a); }
};
struct Min {  // NaN if either operand is NaN, unlike std::fmin
  static double of(double a, double b, uint64_t&) { return a < b || a != a ? a : b; }
};
struct Max {
  static double of(double a, double b, uint64_t&) { return a > b || a != a ? a : b; }
};
struct Mod {
  static double of(double a, double b, uint64_t&) {
    const double rest = std::fmod(a, b);
    if (rest == 0) return std::copysign(0.0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
  }
};
struct Less {
  static int64_t of(double a, double b, uint64_t&) { return a < b ? 1 : 0; }
};
struct LessEqual {
  static int64_t of(double a, double b, uint64_t&) { return a <= b ? 1 : 0; }
};
struct Equal {
  static int64_t of(double a, double b, uint64_t&) { return a == b ? 1 : 0; }
};
struct Sign {
  static double of(double a, uint64_t&) { return a > 0 ? 1.0 : a < 0 ? -1.0 : a; }  // 0 and NaN stay as they are
};
struct Floor {
  static double of(double a, uint64_t&) { return std::floor(a); }
};
struct Exp {
  static double of(double a, uint64_t&) { return elementary::exp(a); }
};
struct Log {
  static double of(double a, uint64_t&) { return std::log(a); }
};
struct Sqrt {
  static double of(double a, uint64_t&) { return std::sqrt(a); }
};
struct Pow {
  static double of(double a, double b, uint64_t&) { return std::pow(a, b); }
};
struct Tanh {
  static double of(double a, uint64_t&) { return elementary::tanh(a); }
};
struct Sigmoid {  // in the form that cannot overflow
  static double of(double a, uint64_t&) {
    const double small = elementary::exp(-std::fabs(a));
    return (a < 0 ? small : 1.0) / (1.0 + small);
  }
};

template <typename T>
struct If {
  static T of(int64_t condition, T a, T b, uint64_t&) { return condition != 0 ? a : b; }
};

}  // namespace feedline::flow::ops
