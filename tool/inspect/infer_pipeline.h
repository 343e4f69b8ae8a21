// Writes a pipeline for data that was just inspected.
#pragma once

#include <string>
#include <vector>

#include "tool/common/files.h"
#include "tool/inspect/feature_stats.h"

namespace feedline::tool {

/// Returns a pipeline text that `feedline check` accepts for these files. The pipeline decodes pictures, and delivers
/// a feature unchanged if it has no pictures. Comments in the text describe the features, and name the features that
/// feedline cannot feed.
std::string infer_pipeline(const DataStats& stats, const std::vector<FileSummary>& files);

/// Throws Error bad_pipeline if the files seem to belong to two data sets: all records of the first file have a feature
/// or feature list that no record of a later file has, and the other way round. Records that do not parse do not count.
/// A pipeline for both data sets would fill in default values everywhere.
void refuse_two_data_sets(const std::vector<DataStats>& by_file, const std::vector<FileSummary>& files);

}  // namespace feedline::tool
