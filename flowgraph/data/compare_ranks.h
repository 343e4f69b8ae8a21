// Compares what the ranks of a feed must have in common, so that each can provide its part of the same global batches.
//
// Each function must be called on all ranks. If the ranks differ, it throws on all of them an Error bad_pipeline that
// says which rank differs from rank 0, and in what: "rank 2 differs from rank 0: shuffle.seed: 7, not 5".
#pragma once

#include <cstdint>

#include "flowgraph/pipeline/spec.h"
#include "flowgraph/table/table.h"

namespace feedline::config {
class Pipeline;
}

namespace feedline {
class RankGroup;
}

namespace feedline::flow {

struct DataSet;
struct Position;

/// Compares the pipelines, the number of replicas, the number of parts of a global batch, and the epoch to begin with.
/// Ignores the fields that depend on the machine: paths, index.dir, index.mode, memory, parallelism, cache,
/// lookup.resident and distribute.peer.
void compare_pipelines(RankGroup& ranks, const config::Pipeline& pipeline, int replicas, int parts, uint64_t epoch);

/// Compares the positions (step and epoch) from which the ranks continue.
void compare_positions(RankGroup& ranks, const Position& position);

/// Compares the table of each output that looks rows up: the table's name without folders, its type and its shape; of a
/// vocabulary only the name of its file. If the table is open, compares the names of its rows, too. A table must be
/// open on all ranks, or on none of them.
void compare_tables(RankGroup& ranks, const PipelineSpec& spec, const Tables& tables);

/// Compares the names of the files, without folders, and their sizes.
void compare_files(RankGroup& ranks, const DataSet& data);

/// Compares the number of records and the audit sum of each file, and those of the records that the filter keeps. Under
/// BLOCK, whose blocks end at seek points, also compares the seek points of compressed files.
void compare_content(RankGroup& ranks, const DataSet& data, ShuffleMode mode);

}  // namespace feedline::flow
