// Writes a pipeline for data that was just inspected.
#pragma once

#include <string>
#include <vector>

#include "tool/common/files.h"
#include "tool/inspect/feature_stats.h"

namespace feedline::tool {

/// Returns a pipeline text that `feedline check` accepts for these files. It decodes pictures and delivers every other
/// feature unchanged. Comments in the text describe the features, and name those that feedline cannot feed.
std::string infer_pipeline(const DataStats& stats, const std::vector<FileSummary>& files);

/// Throws Error bad_pipeline if the files seem to belong to two data sets: all records of one file have a feature that
/// no record of another file has, and the other way round. A pipeline for both would fill in default values everywhere.
void refuse_two_data_sets(const std::vector<DataStats>& by_file, const std::vector<FileSummary>& files);

}  // namespace feedline::tool
