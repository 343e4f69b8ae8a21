#include "flowgraph/batch_rows.h"

#include <algorithm>

namespace feedline::flow {

std::span<const BatchRow> rows_of_batch(const BatchRows& batch, int64_t begin, int64_t end, BatchRow* out) {
  size_t n = 0;
  int64_t at = 0;
  for (const RowRun& run : batch.runs) {
    const int64_t from = std::max(begin, at), to = std::min(end, at + run.count);
    const std::vector<uint32_t>& filler = run.chunk->filler;
    for (int64_t i = from; i < to; i++) {
      const uint32_t row = run.first + (run.padding ? 0 : static_cast<uint32_t>(i - at));
      const bool stands_in = run.padding || (!filler.empty() && std::binary_search(filler.begin(), filler.end(), row));
      out[n++] = {run.chunk.get(), row, stands_in};
    }
    at += run.count;
    if (at >= end) break;
  }
  return {out, n};
}

}  // namespace feedline::flow
