// Applies one operation of a formula to a block of rows. Internal to expression.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "flowgraph/formula/operation.h"

namespace feedline::flow {

/// The number of rows that an instruction works on at a time.
inline constexpr uint32_t formula_block_rows = 256;

/// A block of rows. Every value has 64 bits; the operation determines its type.
struct alignas(64) FormulaBlock {
  std::byte rows[formula_block_rows * 8];
  template <typename T>
  T* as() noexcept {
    return reinterpret_cast<T*>(rows);
  }
};

/// Applies `op` to each row of `from` and stores the results in `to`, which must not be one of `from`. Precondition:
/// `op` is neither Op::input nor Op::constant. Sets `failed` to a nonzero value if any row fails. The function is
/// compiled for each level of SIMD. The results of all levels are the same to the bit, because no operation is
/// contracted or reordered.
void run_block(Op op, FormulaBlock& to, const std::array<FormulaBlock*, 3>& from, uint64_t& failed) noexcept;

}  // namespace feedline::flow
