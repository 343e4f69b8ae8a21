#include "flowgraph/pipeline/spec.h"

#include <algorithm>

namespace feedline::flow {

std::optional<uint64_t> PipelineSpec::row_writer_scratch() const noexcept {
  std::optional<uint64_t> most;
  for (const OutputSpec& output : outputs)
    for (const DenseJob& job : output.jobs)
      if (job.writer) most = std::max(most.value_or(0), job.writer->scratch_bytes());
  return most;
}

}  // namespace feedline::flow
