// One operation of a formula on a block of rows. Inside of expression.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "flowgraph/formula/operation.h"

namespace feedline::flow {

/// Rows that an instruction works on at a time.
inline constexpr uint32_t formula_block_rows = 256;

/// A block of rows. Everything is 64 bits wide; its type is the operation's affair.
struct alignas(64) FormulaBlock {
  std::byte rows[formula_block_rows * 8];
  template <typename T>
  T* as() noexcept {
    return reinterpret_cast<T*>(rows);
  }
};

/// `to` is none of `from`. Not for Op::input and Op::constant. `failed` becomes nonzero if any row fails. Compiled for
/// each level of SIMD, with the same results to the bit: nothing is contracted or reordered.
void run_block(Op op, FormulaBlock& to, const std::array<FormulaBlock*, 3>& from, uint64_t& failed) noexcept;

}  // namespace feedline::flow
