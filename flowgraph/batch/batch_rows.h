// The rows of a batch one by one, and work on many of them at once.
#pragma once

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <cstdint>
#include <span>

#include "base/float_environment.h"
#include "flowgraph/batch/assemble.h"

namespace feedline::flow {

/// Rows that are looked up at a time.
inline constexpr int64_t block_rows = 256;

/// Enough output for a task to be worth its scheduling, little enough to stay in the second-level cache.
inline constexpr int64_t task_bytes = 256 << 10;

struct BatchRow {
  const Chunk* chunk = nullptr;
  uint32_t row = 0;     // of the chunk
  bool filler = false;  // padding, or standing in for a bad record
};

/// The rows [begin, end) of a batch into `out`, which has room for them.
std::span<const BatchRow> rows_of_batch(const BatchRows& batch, int64_t begin, int64_t end, BatchRow* out);

/// Whether the rows [begin, end) of a batch lie one behind another in a chunk, and none is filler.
bool in_sequence(const BatchRows& batch, int64_t begin, int64_t end) noexcept;

/// body(begin, end) over [0, count) in pieces of at most `grain`, side by side in the calling thread's arena.
template <typename Body>
void side_by_side(int64_t count, int64_t grain, const Body& body) {
  if (count <= grain) return body(int64_t{0}, count);
  // Isolated: while it waits for its pieces, this thread must not pick up other work of the graph.
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
