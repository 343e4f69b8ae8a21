// The memory that readers take which work piece by piece (flowgraph/chunk): a plan has to count it before they exist.
#pragma once

#include <cstdint>

#include "flowgraph/data/data_set.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// A file inflater's two input buffers, the buffer for bytes that nobody wants, and the decoder's state and window.
inline constexpr uint64_t inflater_input_bytes = 128 << 10;
inline constexpr uint64_t inflater_skip_bytes = 64 << 10;
inline constexpr uint64_t inflater_memory_bytes = 2 * inflater_input_bytes + inflater_skip_bytes + (128 << 10);

/// index.mode LAZY: a chunk has at most so many rows and bytes, unless its first record alone has more.
inline constexpr uint32_t most_lazy_rows = 1 << 14;
inline constexpr uint64_t most_lazy_bytes = 512 << 10;
/// The bytes of a slot, which must hold the longest record that there may be.
uint64_t lazy_slot_bytes(uint64_t record_limit) noexcept;
/// The memory of the lazy reader and of the indexes that it makes.
uint64_t lazy_reader_bytes(const PipelineSpec& spec, const DataSet& data) noexcept;
/// The most chunks that `rows` consecutive rows can lie in.
uint64_t lazy_chunks_of(uint64_t rows, uint64_t record_limit) noexcept;

}  // namespace feedline::flow
