// Statistics as JSON: what `feedline stats --json` prints, and what the table, the page and the comparison are made of.
#pragma once

#include "base/json.h"
#include "feedline/pipeline.h"
#include "tool/stats/collect_stats.h"

namespace feedline::tool {

/// Returns the document of the statistics, without `feedline_json`. docs/statistics.md lists its keys.
Json stats_json(const CollectedStats& stats, const Pipeline& pipeline, const std::optional<SampleSize>& sample);

}  // namespace feedline::tool
