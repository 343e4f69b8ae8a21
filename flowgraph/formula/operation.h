// The operations of a formula (enum Op), and the functions that apply an operation to a row.
#pragma once

#include <bit>
#include <cstdint>

#include "flowgraph/formula/formula_ops.h"

namespace feedline::flow {

// clang-format off
// What enum Op calls each operation, and its type in ops::.
#define FEEDLINE_OPERATIONS(DO)                                                                             \
  DO(add_int, AddInt) DO(subtract_int, SubtractInt) DO(multiply_int, MultiplyInt)                           \
  DO(negate_int, NegateInt) DO(abs_int, AbsInt) DO(min_int, MinInt) DO(max_int, MaxInt)                     \
  DO(mod_int, ModInt) DO(less_int, LessInt) DO(less_equal_int, LessEqualInt) DO(equal_int, EqualInt)        \
  DO(and_, And) DO(or_, Or) DO(not_, Not) DO(to_float, ToFloat) DO(add, Add) DO(subtract, Subtract)         \
  DO(multiply, Multiply) DO(divide, Divide) DO(negate, Negate) DO(abs, Abs) DO(min, Min) DO(max, Max)       \
  DO(mod, Mod) DO(less, Less) DO(less_equal, LessEqual) DO(equal, Equal) DO(sign, Sign) DO(floor, Floor)    \
  DO(exp, Exp) DO(log, Log) DO(sqrt, Sqrt) DO(pow, Pow) DO(tanh, Tanh) DO(sigmoid, Sigmoid)                 \
  DO(if_int, If<int64_t>) DO(if_float, If<double>)
// clang-format on

enum class Op : uint8_t {
  input,
  constant,
#define FEEDLINE_OP(op, type) op,
  FEEDLINE_OPERATIONS(FEEDLINE_OP)
#undef FEEDLINE_OP
};

/// An int64 or a float64 in 64 bits.
struct Scalar {
  uint64_t bits = 0;
  static Scalar of(int64_t value) { return {static_cast<uint64_t>(value)}; }
  static Scalar of(double value) { return {std::bit_cast<uint64_t>(value)}; }
  template <typename T>
  T as() const {
    return std::bit_cast<T>(bits);
  }
};

/// Calls `use` with an object of the type in ops:: that `op` stands for. Precondition: `op` is neither Op::input nor
/// Op::constant.
template <typename Use>
decltype(auto) with_operation(Op op, Use&& use) {
  switch (op) {
#define FEEDLINE_OP(op, type) \
  case Op::op:                \
    return use(ops::type());
    FEEDLINE_OPERATIONS(FEEDLINE_OP)
#undef FEEDLINE_OP
    case Op::input:
    case Op::constant:
      break;
  }
  return use(ops::If<double>());
}

namespace detail {
template <typename R, typename A>
Scalar call(R (*of)(A, uint64_t&), const Scalar* args, uint64_t& failed) {
  return Scalar::of(of(args[0].as<A>(), failed));
}
template <typename R, typename A, typename B>
Scalar call(R (*of)(A, B, uint64_t&), const Scalar* args, uint64_t& failed) {
  return Scalar::of(of(args[0].as<A>(), args[1].as<B>(), failed));
}
template <typename R, typename A, typename B, typename C>
Scalar call(R (*of)(A, B, C, uint64_t&), const Scalar* args, uint64_t& failed) {
  return Scalar::of(of(args[0].as<A>(), args[1].as<B>(), args[2].as<C>(), failed));
}
}  // namespace detail

/// Applies one operation to one row. `failed` becomes nonzero if the row has no result.
inline Scalar apply(Op op, const Scalar* args, uint64_t& failed) {
  return with_operation(op, [&](auto operation) { return detail::call(&decltype(operation)::of, args, failed); });
}

}  // namespace feedline::flow
