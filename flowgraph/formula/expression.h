// Formulas over scalars, evaluated column by column.
//
//   + - * / < <= > >= == != and or not ( ) unary -   numbers as in C, names as [A-Za-z_][A-Za-z0-9_]*, `out.NAME`
//   if(c, a, b) abs sign min max floor mod exp log sqrt pow tanh sigmoid
//
// int64 operands stay int64 for + - * abs min max mod, comparisons and the branches of if, and overflow there is an
// error of that row; everything else is float64, as std:: of <cmath> computes it. Numbers written without . and e are
// int64; constants are float64. Comparisons and logic give int64 0 or 1; whatever is not 0 is true, also NaN. mod has
// the divisor's sign, as Python's %; by 0 it is an error of that row for int64, NaN for float64. min and max are NaN
// where one side is. and, or and if look at the operands that decide only: an error in another one does not count, so
// if(n == 0, 0, mod(s, n)) is safe.
//
// Every operation is one of formula_ops.h on each row by itself: results depend neither on the number of rows nor on
// the CPU's instruction set.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flowgraph/formula/formula_value.h"

namespace feedline::flow {

/// A compiled formula. Immutable; any number of threads may evaluate it at once.
class Program {
 public:
  using Type = FormulaType;
  using Input = FormulaInput;
  /// A column of one scalar for each row.
  struct Column {
    Type type = Type::float64;
    const void* values = nullptr;  // int64_t or double
  };
  static constexpr uint32_t no_failure = ~uint32_t{0};

  Program() = default;
  /// `known`: every name that may be used. Throws Error bad_pipeline with the formula, a caret under the place, and for
  /// an unknown name the known ones (constants included).
  static Program compile(std::string_view formula, const std::map<std::string, double>& constants,
                         std::span<const Input> known);

  /// The known names that the formula uses, in the order in which evaluate() wants their columns.
  const std::vector<Input>& inputs() const noexcept;
  Type type() const noexcept;

  /// out[i] = the formula of row i, an int64 result as float64. Returns the first row that failed (integer overflow,
  /// mod 0), its out and those behind it unspecified, or no_failure. No allocation; takes 70 KiB of stack.
  /// Precondition: `inputs` are the columns of inputs(), each of that type.
  uint32_t evaluate(std::span<const Column> inputs, uint32_t rows, double* out) const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace feedline::flow
