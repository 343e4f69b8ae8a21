// The operations of a formula (enum Op), and the functions that apply an operation to a row.
#pragma once

#include <bit>
#include <cstdint>

#include "flowgraph/formula/formula_ops.h"

namespace feedline::flow {

enum class Op : uint8_t {
  input,
  constant,
  add_int,
  subtract_int,
  multiply_int,
  negate_int,
  abs_int,
  min_int,
  max_int,
  mod_int,
  less_int,
  less_equal_int,
  equal_int,
  and_,
  or_,
  not_,
  to_float,
  add,
  subtract,
  multiply,
  divide,
  negate,
  abs,
  min,
  max,
  mod,
  less,
  less_equal,
  equal,
  sign,
  floor,
  exp,
  log,
  sqrt,
  pow,
  tanh,
  sigmoid,
  if_int,
  if_float,
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
    case Op::add_int:
      return use(ops::AddInt());
    case Op::subtract_int:
      return use(ops::SubtractInt());
    case Op::multiply_int:
      return use(ops::MultiplyInt());
    case Op::negate_int:
      return use(ops::NegateInt());
    case Op::abs_int:
      return use(ops::AbsInt());
    case Op::min_int:
      return use(ops::MinInt());
    case Op::max_int:
      return use(ops::MaxInt());
    case Op::mod_int:
      return use(ops::ModInt());
    case Op::less_int:
      return use(ops::LessInt());
    case Op::less_equal_int:
      return use(ops::LessEqualInt());
    case Op::equal_int:
      return use(ops::EqualInt());
    case Op::and_:
      return use(ops::And());
    case Op::or_:
      return use(ops::Or());
    case Op::not_:
      return use(ops::Not());
    case Op::to_float:
      return use(ops::ToFloat());
    case Op::add:
      return use(ops::Add());
    case Op::subtract:
      return use(ops::Subtract());
    case Op::multiply:
      return use(ops::Multiply());
    case Op::divide:
      return use(ops::Divide());
    case Op::negate:
      return use(ops::Negate());
    case Op::abs:
      return use(ops::Abs());
    case Op::min:
      return use(ops::Min());
    case Op::max:
      return use(ops::Max());
    case Op::mod:
      return use(ops::Mod());
    case Op::less:
      return use(ops::Less());
    case Op::less_equal:
      return use(ops::LessEqual());
    case Op::equal:
      return use(ops::Equal());
    case Op::sign:
      return use(ops::Sign());
    case Op::floor:
      return use(ops::Floor());
    case Op::exp:
      return use(ops::Exp());
    case Op::log:
      return use(ops::Log());
    case Op::sqrt:
      return use(ops::Sqrt());
    case Op::pow:
      return use(ops::Pow());
    case Op::tanh:
      return use(ops::Tanh());
    case Op::sigmoid:
      return use(ops::Sigmoid());
    case Op::if_int:
      return use(ops::If<int64_t>());
    case Op::if_float:
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
