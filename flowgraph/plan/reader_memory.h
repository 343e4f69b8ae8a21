// The memory that FileInflater and LazyReader (flowgraph/chunk) take. A plan must count it before they exist.
#pragma once

#include <cstdint>

#include "flowgraph/data/data_set.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// A file inflater has two input buffers, a buffer for inflated bytes that no ticket wants, and 128 KiB for the
/// decoder's state and window.
inline constexpr uint64_t inflater_input_bytes = 128 << 10;
inline constexpr uint64_t inflater_skip_bytes = 64 << 10;
inline constexpr uint64_t inflater_memory_bytes = 2 * inflater_input_bytes + inflater_skip_bytes + (128 << 10);

/// index.mode LAZY: the maximum numbers of rows and bytes of a chunk. A chunk may have more bytes if its first record
/// alone has more.
inline constexpr uint32_t most_lazy_rows = 1 << 14;
inline constexpr uint64_t most_lazy_bytes = 512 << 10;
/// LAZY: returns the bytes of a slot, which must hold the longest record that source.record_limit allows.
uint64_t lazy_slot_bytes(uint64_t record_limit) noexcept;
/// LAZY: returns the bytes of the LazyReader and of the indexes that it makes.
uint64_t lazy_reader_bytes(const PipelineSpec& spec, const DataSet& data) noexcept;
/// LAZY: returns the maximum number of chunks in which `rows` consecutive rows can lie. Precondition: record_limit is
/// below 4 GiB.
uint64_t lazy_chunks_of(uint64_t rows, uint64_t record_limit) noexcept;

}  // namespace feedline::flow
