// Writes a Report as metrics for Prometheus.
#pragma once

#include <string>

#include "feedline/report.h"

namespace feedline {

/// Returns the metrics as OpenMetrics 1.0, or in Prometheus's older text format, which names counters differently.
std::string metrics_text(const Report& report, bool open_metrics);

}  // namespace feedline
