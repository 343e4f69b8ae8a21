// Lists the rows of a batch one by one, and calls functions for blocks of them in parallel.
#pragma once

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <cstdint>
#include <span>

#include "base/float_environment.h"
#include "flowgraph/batch/assemble.h"

namespace feedline::flow {

/// The number of rows that are looked up at a time.
inline constexpr int64_t block_rows = 256;

/// Bytes of output for one task: enough to be worth the scheduling, and few enough to stay in the second-level cache.
inline constexpr int64_t task_bytes = 256 << 10;

struct BatchRow {
  const Chunk* chunk = nullptr;
  uint32_t row = 0;     // its number in the chunk
  bool filler = false;  // the row is padding, or its record is bad
  bool bad = false;     // the record that the row refers to is bad: the row must get the tensors of a different row
};

/// Lists the rows [begin, end) of a batch in `out`, which must have room for end - begin elements. Returns the span of
/// `out` that it filled.
std::span<const BatchRow> rows_of_batch(const BatchRows& batch, int64_t begin, int64_t end, BatchRow* out);

/// Returns whether the rows [begin, end) of a batch are consecutive rows of one chunk, and none of them is filler.
bool in_sequence(const BatchRows& batch, int64_t begin, int64_t end) noexcept;

/// Calls body(begin, end) for pieces of [0, count) with at most `grain` elements each, in parallel in the calling
/// thread's arena.
template <typename Body>
void side_by_side(int64_t count, int64_t grain, const Body& body) {
  if (count <= grain) return body(int64_t{0}, count);
  // Isolated, because this thread must not run other tasks of the graph while it waits for its pieces.
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, count, static_cast<size_t>(grain)),
        [&](const tbb::blocked_range<int64_t>& range) {
          const DefaultFloatEnvironment floats;
          body(range.begin(), range.end());
        },
        tbb::simple_partitioner());
  });
}

}  // namespace feedline::flow
