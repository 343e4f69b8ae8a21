#include "flowgraph/pipeline/spec.h"

#include <algorithm>

namespace feedline::flow {

std::string_view FeatureSpec::prefix() const noexcept {
  return where == Where::context        ? context_prefix
         : where == Where::feature_list ? feature_lists_prefix
                                        : std::string_view();
}

const KeptStep* OutputSpec::kept_step() const noexcept {
  static const KeptStep of_steps{.text = {}, .bytes = 0, .why_not = "a record has several pictures"};
  const KeptStep* step = writer() ? writer()->kept_step() : nullptr;
  return step && (step_writer || jobs[0].values > 1) ? &of_steps : step;
}

std::optional<PipelineSpec::RowWriterMemory> PipelineSpec::row_writer_memory() const noexcept {
  std::optional<RowWriterMemory> most;
  for (const OutputSpec& output : outputs) {
    const RowWriter* writer = output.writer();
    if (!writer) continue;
    if (!most) most.emplace();
    most->scratch = std::max(most->scratch, writer->scratch_bytes());
    most->heap = std::max(most->heap, writer->heap_bytes());
  }
  return most;
}

}  // namespace feedline::flow
