// Writes outputs whose rows differ in length: several values in a row, or bytes of any size.
#pragma once

#include <cstdint>
#include <span>

#include "flowgraph/batch/assemble.h"
#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/plan/plan.h"
#include "unpack/unpack.h"

namespace feedline::flow {

/// Writes the output that begins with tensor number `tensor` of the plan: its values (or bytes and offsets), and its
/// step splits and row splits if it has some. A padded output is written as [rows, longest, ...]. `cast` unpacks one
/// number; it is null for bytes. Filler rows are empty, or only padding, so that their bytes stay within the bound of
/// the plan. Rows of `failed` (ascending) are filler, too.
void write_ragged(const Plan& plan, size_t tensor, const unpack::Unpacker* cast, const BatchRows& batch,
                  std::span<const int64_t> failed, BatchBuffer& buffer);

}  // namespace feedline::flow
