// Checks what errors.max_failures and errors.max_failure_rate allow, while data is counted and while it is fed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Returns why `failures` (bad records and, with SKIP_FILE, files that were left out) are too many for
/// errors.max_failures: "3 bad records were found, but errors.max_failures allows 2". Returns nullopt if they are
/// allowed.
std::optional<std::string> exceeds_max_failures(const PipelineSpec& spec, uint64_t failures);

/// Returns why `bad` of `all` are too many for errors.max_failure_rate; nullopt if they are allowed. `noun` is
/// "records" or "files".
std::optional<std::string> exceeds_failure_rate(const PipelineSpec& spec, uint64_t bad, uint64_t all, const char* noun);

}  // namespace feedline::flow
