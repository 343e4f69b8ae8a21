// TensorFlow Datasets keeps a dataset_info.json beside its shards, which says how many records each shard has. This
// file's function compares these numbers with the numbers that were counted, and looks for missing shards.
#pragma once

#include <string>
#include <vector>

#include "flowgraph/data/data_set.h"

namespace feedline::flow {

/// Returns these warnings:
/// - for each file, up to ten, whose number of good records differs from its number in splits[].shardLengths[];
/// - for each dataset_info.json that cannot be read;
/// - for each set of local shards, such as the nine files NAME-00000-of-00009, NAME-00001-of-00009 and so on, with or
///   without an extension, if some shards of the set are neither among `files` nor exist.
///
/// Numbers of records are compared only for files whose names are those of splits[].filepathTemplate, by default
/// DATASET-SPLIT.tfrecord-00000-of-00001 (tensorflow_datasets/core/utils/shard_utils.py).
std::vector<std::string> check_dataset_info(const std::vector<DataFile>& files);

}  // namespace feedline::flow
