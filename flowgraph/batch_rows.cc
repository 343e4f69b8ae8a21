#include "flowgraph/batch_rows.h"

#include <algorithm>

namespace feedline::flow {

std::span<const BatchRow> rows_of_batch(const BatchRows& batch, int64_t begin, int64_t end, BatchRow* out) {
  size_t n = 0;
  auto run = std::upper_bound(batch.runs.begin(), batch.runs.end(), begin,
                              [](int64_t at, const RowRun& r) { return at < r.at; });
  for (--run; begin < end; ++run) {
    uint32_t row = run->first + (run->padding ? 0 : static_cast<uint32_t>(begin - run->at));
    for (const int64_t last = std::min(end, run->at + run->count); begin < last; begin++) {
      const std::vector<uint32_t>& filler = run->chunk->filler;
      const bool stands_in = run->has_filler && std::binary_search(filler.begin(), filler.end(), row);
      out[n++] = {run->chunk, row, run->padding || stands_in};
      row += run->padding ? 0 : 1;
    }
  }
  return {out, n};
}

}  // namespace feedline::flow
