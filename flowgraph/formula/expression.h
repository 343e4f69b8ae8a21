// Compiles formulas over scalars and evaluates them column by column.
//
//   + - * / < <= > >= == != and or not ( ) unary -   numbers as in C, names as [A-Za-z_][A-Za-z0-9_]*, `out.NAME`
//   if(c, a, b) abs sign min max floor mod exp log sqrt pow tanh sigmoid
//
// int64 operands stay int64 for + - * abs min max mod, for comparisons and for the branches of if. Integer overflow is
// an error of the row in which it happens. Everything else is computed in float64, as the functions of <cmath> do it;
// exp, tanh and sigmoid are those of elementary.h. Numbers written without . and e are int64. Constants that have a
// name are float64.
//
// Comparisons and logic give int64 0 or 1. Every value other than 0 is true, also NaN. The result of mod has the
// divisor's sign, as with Python's %. mod by 0 is an error of that row for int64, and NaN for float64. min and max are
// NaN if either operand is NaN. `and`, `or` and `if` look only at the operands that decide. An error in an operand that
// does not decide is ignored, so if(n == 0, 0, mod(s, n)) is safe.
//
// Every operation is one of formula_ops.h, applied to each row by itself. So results depend neither on the number of
// rows nor on the CPU's instruction set.
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

/// A compiled formula. Immutable; any number of threads may evaluate it at the same time.
class Program {
 public:
  using Type = FormulaType;
  using Input = FormulaInput;
  /// A column with one scalar for each row.
  struct Column {
    const void* values = nullptr;  // int64_t or double, as the type of the input says
  };
  static constexpr uint32_t no_failure = ~uint32_t{0};

  Program() = default;
  /// Compiles a formula. It may use the inputs that `known` names, and the names in `constants`, which have fixed
  /// values. If a constant and an input have the same name, the name means the constant. Throws Error bad_pipeline if
  /// the formula or the name of a constant is wrong. The message about a formula shows the part that is wrong, with a
  /// caret under the place. If a name is unknown, the message lists the known names, constants included.
  static Program compile(std::string_view formula, const std::map<std::string, double>& constants,
                         std::span<const Input> known);

  /// Returns the known names that the formula uses, in the order in which evaluate() takes their columns.
  const std::vector<Input>& inputs() const noexcept;
  Type type() const noexcept;

  /// Sets element i of `out`, an int64_t or a double as type() says, to the value of the formula for row i. Returns
  /// no_failure, or the first row that failed (integer overflow, mod by 0); then `out` is unspecified from that row on.
  /// Does not allocate memory; takes 70 KiB of stack. Precondition: `inputs` are the columns of inputs(), each of the
  /// type given there.
  uint32_t evaluate(std::span<const Column> inputs, uint32_t rows, void* out) const noexcept;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace feedline::flow
