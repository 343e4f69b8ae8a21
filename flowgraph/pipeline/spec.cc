#include "flowgraph/pipeline/spec.h"

#include <algorithm>

namespace feedline::flow {

std::string FeatureSpec::place() const {
  const std::string_view prefix = where == Where::context        ? context_prefix
                                  : where == Where::feature_list ? feature_lists_prefix
                                                                 : std::string_view();
  return std::string(prefix) + key;
}

std::optional<PipelineSpec::RowWriterMemory> PipelineSpec::row_writer_memory() const noexcept {
  std::optional<RowWriterMemory> most;
  for (const OutputSpec& output : outputs)
    for (const DenseJob& job : output.jobs) {
      if (!job.writer) continue;
      if (!most) most.emplace();
      most->scratch = std::max(most->scratch, job.writer->scratch_bytes());
      most->heap = std::max(most->heap, job.writer->heap_bytes());
    }
  return most;
}

}  // namespace feedline::flow
