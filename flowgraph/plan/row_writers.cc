#include "flowgraph/plan/row_writers.h"

#include <algorithm>

namespace feedline::flow {

RowWriters::RowWriters(const PipelineSpec& spec, const Tables& tables) {
  for (const OutputSpec& output : spec.outputs) {
    const RowSpec* rows = output.row_spec();
    const auto& writer = writers_.emplace_back(rows ? make_row_writer(*rows, tables) : nullptr);
    if (!writer) continue;
    scratch_bytes_ = std::max(scratch_bytes_, writer->scratch_bytes());
    heap_bytes_ = std::max(heap_bytes_, writer->heap_bytes());
  }
}

}  // namespace feedline::flow
