// What the ranks of a feed must have in common, so that each gives its part of the same global batches.
//
// Each function is called on all ranks. Where they differ it throws, on all of them, an Error bad_pipeline that says
// which rank differs from rank 0, and in what: "rank 2 differs from rank 0: shuffle.seed: 7, not 5".
#pragma once

#include <cstdint>

namespace feedline::config {
class Pipeline;
}

namespace feedline {
class RankGroup;
}

namespace feedline::flow {

struct DataSet;
struct Position;

/// The pipeline, less what is the machine's (paths, index.dir, index.mode, memory, parallelism, cache), the number of
/// replicas, that of the parts of a global batch, and the epoch to begin with.
void compare_pipelines(RankGroup& ranks, const config::Pipeline& pipeline, int replicas, int parts, uint64_t epoch);

/// Where they go on.
void compare_positions(RankGroup& ranks, const Position& position);

/// Names without folders, and sizes.
void compare_files(RankGroup& ranks, const DataSet& data);

/// What was counted and what the filter keeps.
void compare_content(RankGroup& ranks, const DataSet& data);

}  // namespace feedline::flow
