#include "flowgraph/data/error_limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace feedline::flow {

std::optional<std::string> exceeds_max_failures(const PipelineSpec& spec, uint64_t failures) {
  if (spec.max_failures < 0 || failures <= static_cast<uint64_t>(spec.max_failures)) return std::nullopt;
  return fmt::format("{} bad records{} were found, but errors.max_failures allows {}", failures,
                     spec.on_error == OnError::skip_file ? " and files" : "", spec.max_failures);
}

std::optional<std::string> exceeds_failure_rate(const PipelineSpec& spec, uint64_t bad, uint64_t all,
                                                const char* noun) {
  if (spec.max_failure_rate >= 1) return std::nullopt;  // always so with LAZY, where `all` is not known
  const double rate = static_cast<double>(bad) / static_cast<double>(std::max<uint64_t>(1, all));
  if (rate <= spec.max_failure_rate) return std::nullopt;
  return fmt::format("{:.3g} of the {} are bad, but errors.max_failure_rate allows {:.3g}", rate, noun,
                     spec.max_failure_rate);
}

}  // namespace feedline::flow
