// Outputs whose rows differ in length: several values a row, or bytes of any size.
#pragma once

#include "flowgraph/batch/assemble.h"
#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/plan/plan.h"
#include "gpu/unpack/unpack.h"

namespace feedline::flow {

/// Writes the output that begins with tensor number `tensor` of the plan: its values (or bytes and offsets), and its
/// row splits where it has some; a padded one as [rows, longest, ...]. `cast` unpacks one number; null for bytes.
/// Filler rows are empty, or all padding, so that their bytes stay within what the plan bounds.
void write_varying(const Plan& plan, size_t tensor, const gpu::Unpacker* cast, const BatchRows& batch,
                   BatchBuffer& buffer);

}  // namespace feedline::flow
