// The shards of a data set as patterns that a pipeline can name.
#pragma once

#include <string>
#include <vector>

namespace feedline::cli {

/// Returns absolute paths and patterns that together match exactly these files: "/data/a-*-of-00004.tfrecord" stands for
/// files whose names differ in one number alone. A file is named by its path where a pattern would match
/// another file, too.
std::vector<std::string> shard_patterns(const std::vector<std::string>& files);

}  // namespace feedline::cli
