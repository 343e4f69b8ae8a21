// Epochs without a step: most likely data and pipeline do not fit.
#pragma once

#include <cstdint>

#include "feedline/error.h"

namespace feedline::flow {

struct Plan;

/// Throws Error bad_pipeline where an epoch of the plan has no step, unless the pipeline allows it: says which stage
/// leaves too little. chosen: samples before the filter. Data that ends with a raised error ends with that one instead.
void refuse_empty_epoch(const Plan& plan, uint64_t chosen);

/// The Error for data that is counted while it is fed (index.mode LAZY) and had so many samples.
Error empty_epoch(const Plan& plan, int64_t samples);

}  // namespace feedline::flow
