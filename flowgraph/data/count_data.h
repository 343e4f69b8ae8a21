// What a pipeline's files hold, by their indexes; files without one are counted.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "flowgraph/data/data_set.h"

namespace feedline {
class RankGroup;
}

namespace feedline::flow {

/// The files as their indexes say; those without a valid one are counted, every byte of them, on `threads` threads:
/// several files at once, and the ranges of large ones. What was counted is kept (io/index/index_store.h); of files below
/// 1 MiB only where the pipeline speaks of an index: to count them takes no longer. Applies errors.on_error and chooses
/// samples; throws Error where max_failures or max_failure_rate are exceeded, where index.mode is REQUIRE and one is
/// missing, and io_error. `on_progress`: of the bytes to be counted; not thread by thread, but from any thread.
///
/// `ranks`: all call it, and have the same data, or all throw; each counts its share (flowgraph/data/index_files.h).
DataSet count_data(const PipelineSpec& spec, int threads,
                   const std::function<void(uint64_t done, uint64_t total)>& on_progress, RankGroup& ranks);
/// By itself.
DataSet count_data(const PipelineSpec& spec, int threads,
                   const std::function<void(uint64_t done, uint64_t total)>& on_progress);

/// Lazy data once it has been counted: as count_data() would have it.
DataSet counted_data(const PipelineSpec& spec, DataSet data, std::vector<io::FileIndex> indexes);

}  // namespace feedline::flow
