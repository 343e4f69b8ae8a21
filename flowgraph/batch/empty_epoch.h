// Refuses epochs without a step: most likely the data and the pipeline do not fit each other.
#pragma once

#include <cstdint>

#include "feedline/error.h"

namespace feedline::flow {

struct Schedule;

/// Throws Error bad_pipeline if an epoch of the plan has no step, unless the pipeline allows it. The error says which
/// stage leaves too little. `chosen` is the number of samples before the filter removes any. Does nothing if the data
/// ends with a raised error, because the feed then ends with that error.
void refuse_empty_epoch(const Schedule& schedule, uint64_t chosen);

/// Returns the Error for data that was counted while it was fed (index.mode LAZY) and had only `samples` samples.
Error empty_epoch(const Schedule& schedule, int64_t samples);

}  // namespace feedline::flow
