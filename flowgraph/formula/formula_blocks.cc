// The loops have a fixed number of rows, so that compilers turn them into vector code.
#include "flowgraph/formula/formula_blocks.h"

#include "base/compiled_for.h"

namespace feedline::flow {
namespace {

template <typename Operation, typename R, typename A>
void loop(R (*)(A, uint64_t&), FormulaBlock& to, const std::array<FormulaBlock*, 3>& from, uint64_t& failed) {
  R* __restrict out = to.as<R>();
  const A* __restrict a = from[0]->as<A>();
  uint64_t any = 0;
  for (uint32_t i = 0; i < formula_block_rows; i++) out[i] = Operation::of(a[i], any);
  failed |= any;
}
template <typename Operation, typename R, typename A, typename B>
void loop(R (*)(A, B, uint64_t&), FormulaBlock& to, const std::array<FormulaBlock*, 3>& from, uint64_t& failed) {
  R* __restrict out = to.as<R>();
  const A* __restrict a = from[0]->as<A>();
  const B* __restrict b = from[1]->as<B>();
  uint64_t any = 0;
  for (uint32_t i = 0; i < formula_block_rows; i++) out[i] = Operation::of(a[i], b[i], any);
  failed |= any;
}
template <typename Operation, typename R, typename A, typename B, typename C>
void loop(R (*)(A, B, C, uint64_t&), FormulaBlock& to, const std::array<FormulaBlock*, 3>& from, uint64_t& failed) {
  R* __restrict out = to.as<R>();
  const A* __restrict a = from[0]->as<A>();
  const B* __restrict b = from[1]->as<B>();
  const C* __restrict c = from[2]->as<C>();
  uint64_t any = 0;
  for (uint32_t i = 0; i < formula_block_rows; i++) out[i] = Operation::of(a[i], b[i], c[i], any);
  failed |= any;
}

void run(Op op, FormulaBlock& to, const std::array<FormulaBlock*, 3>& from, uint64_t& failed) {
  with_operation(op, [&](auto operation) { loop<decltype(operation)>(&decltype(operation)::of, to, from, failed); });
}

}  // namespace

void run_block(Op op, FormulaBlock& to, const std::array<FormulaBlock*, 3>& from, uint64_t& failed) noexcept {
  compiled_for<run>(simd_level())(op, to, from, failed);
}

}  // namespace feedline::flow
