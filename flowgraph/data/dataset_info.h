// TensorFlow Datasets keeps a dataset_info.json beside its shards, which says how many records each shard has. This
// unit compares these numbers with the counted ones, and looks for shards that are not there.
#pragma once

#include <string>
#include <vector>

#include "flowgraph/data/data_set.h"

namespace feedline::flow {

/// Returns a warning for each file, up to ten, whose number of good records is not the one in splits[].shardLengths[],
/// and for each dataset_info.json that cannot be read. Files are compared that have the names of
/// splits[].filepathTemplate, by default DATASET-SPLIT.tfrecord-00000-of-00001
/// (tensorflow_datasets/core/utils/shard_utils.py). Besides a warning for each set of local files whose names end with
/// -00000-of-00009, or that and an extension, if some of these nine are neither among the files nor exist.
std::vector<std::string> check_dataset_info(const std::vector<DataFile>& files);

}  // namespace feedline::flow
