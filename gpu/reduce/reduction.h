// The definition of a reduction over ranks. Every communicator on the host computes reductions with this function.
#pragma once

#include <cstddef>
#include <span>

#include "feedline/reduction.h"
#include "feedline/tensor.h"

namespace feedline::gpu {

/// Computes to[i] = from[0][i] op from[1][i] op ... for i < `elements`, where from[r] points to the elements of rank r.
/// There is at least one rank. The dtype may be any dtype of numbers except BOOL. FLOAT16 and BFLOAT16 are computed in
/// float32 and rounded once. `to` may be one of `from`.
void reduce(std::span<const std::byte* const> from, DType dtype, Reduction reduction, size_t elements, std::byte* to);

}  // namespace feedline::gpu
