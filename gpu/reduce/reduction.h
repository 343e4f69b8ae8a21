// What a reduction over ranks gives: the definition that every communicator of the host computes by.
#pragma once

#include <cstddef>
#include <span>

#include "feedline/reduction.h"
#include "feedline/tensor.h"

namespace feedline::gpu {

/// to[i] = from[0][i] op from[1][i] op ..., for `elements` elements of a dtype of numbers other than BOOL; at least one
/// rank. FLOAT16 and BFLOAT16 are computed in float32 and rounded once. `to` may be one of `from`.
void reduce(std::span<const std::byte* const> from, DType dtype, Reduction reduction, size_t elements, std::byte* to);

}  // namespace feedline::gpu
