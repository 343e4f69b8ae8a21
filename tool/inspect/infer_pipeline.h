// Writes a pipeline for data that was just inspected.
#pragma once

#include <string>
#include <vector>

#include "tool/common/files.h"
#include "tool/inspect/feature_stats.h"

namespace feedline::cli {

/// Returns a pipeline text that `feedline check` accepts for these files and that delivers every feature as it is.
/// Comments in the text say what the data cannot tell, or what feedline cannot feed.
std::string infer_pipeline(const DataStats& stats, const std::vector<FileSummary>& files);

/// Throws Error bad_pipeline if one file's records all have a feature that another file lacks, and the other way round:
/// a pipeline for both would fill the features of each with default values.
void refuse_two_data_sets(const std::vector<DataStats>& by_file, const std::vector<FileSummary>& files);

}  // namespace feedline::cli
