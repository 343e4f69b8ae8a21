// A pipeline for data that somebody just looked at.
#pragma once

#include <string>
#include <vector>

#include "tool/common/files.h"
#include "tool/inspect/feature_stats.h"

namespace feedline::cli {

/// Pipeline text that `feedline check` accepts for these files and that delivers every feature as it is. What the data
/// cannot tell, or feedline cannot feed, stands in comments.
std::string infer_pipeline(const DataStats& stats, const std::vector<FileSummary>& files);

}  // namespace feedline::cli
