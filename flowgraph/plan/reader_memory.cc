#include "flowgraph/plan/reader_memory.h"

#include <algorithm>

#include "base/mul_div.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {

uint64_t lazy_slot_bytes(uint64_t record_limit) noexcept {
  return std::max(most_lazy_bytes, record_limit + io::frame_bytes);
}

uint64_t lazy_reader_bytes(const PipelineSpec& spec, const DataSet& data) noexcept {
  // The indexes are vectors, which double as they grow; so they may take twice their size.
  uint64_t longest = 0, indexes = 0;
  for (const DataFile& file : data.files) {
    longest = std::max(longest, file.index.largest_record);
    indexes += 2 * sizeof(io::IndexEntry) * (file.id.size / spec.sources[file.source].index.stride + 2);
    // What a compressed file inflates to is not known. A window is deflated, as the file is, and there is at most one
    // for 32 windows of the stream. So the windows take about a 32nd of the file, or twice that while they are added.
    // As much again is for the entries of a stream that is longer than the file.
    if (file.compressed()) indexes += file.id.size / 8;
  }
  return 2 * longest + (uint64_t{1} << 20) + indexes;
}

// A chunk ends when the next record does not fit. So two neighbouring chunks together have more than most_lazy_bytes,
// or the first has most_lazy_rows.
uint64_t lazy_chunks_of(uint64_t rows, uint64_t record_limit) noexcept {
  const uint64_t by_bytes = mul_div(rows, record_limit + io::frame_bytes, most_lazy_bytes);
  return std::min(rows + 1, 2 * (by_bytes + rows / most_lazy_rows) + 3);
}

}  // namespace feedline::flow
