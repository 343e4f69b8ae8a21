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

/// Throws Error bad_pipeline if one file's records all have a feature that another file lacks, and the other way round:
/// a pipeline for both would fill the features of each with default values.
void refuse_two_data_sets(const std::vector<DataStats>& by_file, const std::vector<FileSummary>& files);

}  // namespace feedline::cli
