#include "flowgraph/pipeline/spec.h"

#include <algorithm>

#include "flowgraph/rows/kept_picture.h"

namespace feedline::flow {

std::string_view FeatureSpec::prefix() const noexcept {
  return where == Where::context        ? context_prefix
         : where == Where::feature_list ? feature_lists_prefix
                                        : std::string_view();
}

std::optional<KeptStep> OutputSpec::kept_step() const {
  const RowSpec* rows = row_spec();
  std::optional<KeptStep> step = rows ? flow::kept_step(*rows) : std::nullopt;
  if (step && (steps || jobs[0].values > 1)) step = KeptStep{.text = {}, .why_not = "a record has several pictures"};
  return step;
}

bool PipelineSpec::rows_can_fail() const noexcept {
  return std::ranges::any_of(outputs, [](const OutputSpec& output) { return output.row_spec() != nullptr; });
}

}  // namespace feedline::flow
