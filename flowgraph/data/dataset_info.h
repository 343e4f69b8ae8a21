// TensorFlow Datasets keeps a dataset_info.json beside its shards, which says how many records each has.
#pragma once

#include <string>
#include <vector>

#include "flowgraph/data/data_set.h"

namespace feedline::flow {

/// A warning for each counted file, up to ten, whose number of good records is not its splits[].shardLengths[]; and for
/// a dataset_info.json that cannot be read. Files are told by their default names,
/// DATASET-SPLIT.tfrecord-00000-of-00001 (tensorflow_datasets/core/utils/shard_utils.py); others are not looked at.
std::vector<std::string> check_dataset_info(const std::vector<DataFile>& files);

}  // namespace feedline::flow
