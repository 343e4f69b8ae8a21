#include "flowgraph/batch/batch_rows.h"

#include <algorithm>

namespace feedline::flow {

namespace {

bool is_bad(const StepRows& step, const Chunk& chunk, uint32_t row) { return step.has_filler && chunk.is_bad(row); }

// Returns the run (consecutive rows of one chunk) that has the row, or the first run after the row.
std::vector<TicketRows>::const_iterator run_of(const StepRows& step, int64_t row) noexcept {
  return std::upper_bound(step.rows.begin(), step.rows.end(), row,
                          [](int64_t at, const TicketRows& run) { return at < run.at + run.count; });
}

}  // namespace

// A row without a sample (filler) refers to the nearest row with a sample before it. If there is no such row before it,
// it refers to the nearest row with a sample after it.
std::span<const BatchRow> rows_of_batch(const BatchRows& batch, int64_t begin, int64_t end, BatchRow* out) {
  const StepRows& step = *batch.of_step;
  const auto first = step.rows.begin(), last = step.rows.end();
  int64_t at = batch.wanted.first + begin;
  const int64_t stop = batch.wanted.first + end;
  auto run = run_of(step, at);
  const int64_t stop_of_rows = std::min(stop, batch.wanted.last);
  BatchRow* next = out;
  while (at < stop) {
    // The fast path of a shuffle, where each run is a single row.
    for (; run != last && run->count == 1 && run->at == at && at < stop_of_rows && !step.has_filler; ++run, at++)
      *next++ = {step.chunk_of(*run), run->first};
    if (at == stop) break;
    const int64_t rows_begin = run == last || at >= stop_of_rows ? stop : std::min(stop, run->at);
    if (at < rows_begin) {
      const bool is_in_run = run != last && run->at < at;
      const TicketRows& nearest = is_in_run || run == first ? *run : run[-1];
      const auto rows_before = std::clamp<int64_t>(at - nearest.at, 1, nearest.count);
      const uint32_t row = nearest.first + static_cast<uint32_t>(rows_before) - 1;
      const Chunk* const chunk = step.chunk_of(nearest);
      next = std::fill_n(next, rows_begin - at, BatchRow{chunk, row, true, is_bad(step, *chunk, row)});
      at = rows_begin;
      continue;
    }
    const Chunk* const chunk = step.chunk_of(*run);
    uint32_t row = run->first + static_cast<uint32_t>(at - run->at);
    for (const int64_t rows_end = std::min(stop, run->at + run->count); at < rows_end; at++, row++) {
      const bool bad = is_bad(step, *chunk, row);
      *next++ = {chunk, row, bad, bad};
    }
    ++run;
  }
  return {out, next};
}

bool in_sequence(const BatchRows& batch, int64_t begin, int64_t end) noexcept {
  const StepRows& step = *batch.of_step;
  const int64_t first = batch.wanted.first + begin, last = batch.wanted.first + end;
  const auto run = run_of(step, first);
  return !step.has_filler && run != step.rows.end() && run->at <= first &&
         last <= std::min(run->at + run->count, batch.wanted.last);
}

}  // namespace feedline::flow
