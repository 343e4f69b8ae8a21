// The shards of a data set as patterns that a pipeline can name.
#pragma once

#include <string>
#include <vector>

namespace feedline::tool {

/// Returns absolute paths and patterns that together match exactly these files. A pattern such as
/// "/data/a-*-of-00004.tfrecord" stands for files of one folder whose names differ only in numbers. If the pattern
/// would also match a file that is not in `files`, the files are named by their paths instead.
std::vector<std::string> shard_patterns(const std::vector<std::string>& files);

}  // namespace feedline::tool
