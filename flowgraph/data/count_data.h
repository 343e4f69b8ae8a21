// Says what a pipeline's files hold, from their indexes. Files without an index are counted.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "flowgraph/data/data_set.h"

namespace feedline {
class RankGroup;
}

namespace feedline::flow {

/// Returns the pipeline's files as their indexes describe them. Files without a valid index are counted: every byte is
/// read and verified, on `threads` threads, which count several files and several ranges of a large file at the same
/// time. The new indexes are kept (io/index/index_store.h). The index of a file below 1 MiB is kept only if the source
/// has an `index` field that asks for it (IndexSpec::given), because counting so small a file again takes no longer
/// than reading its index.
///
/// Applies errors.on_error and chooses the samples. Throws Error if max_failures or max_failure_rate is exceeded, or if
/// index.mode is REQUIRE and an index is missing; throws Error io_error if a file cannot be read. `on_progress` is told
/// how many of the bytes to be counted are done. It may be called from any thread, but never from two at the same time.
///
/// All ranks in `ranks` must call this function. Either all of them get the same data, or all throw. Each rank counts
/// its share (flowgraph/data/index_files.h).
DataSet count_data(const PipelineSpec& spec, int threads,
                   const std::function<void(uint64_t done, uint64_t total)>& on_progress, RankGroup& ranks);
/// Does the same for a single rank.
DataSet count_data(const PipelineSpec& spec, int threads,
                   const std::function<void(uint64_t done, uint64_t total)>& on_progress);

/// Completes data that was lazy (DataSet::lazy) and has been counted since. Returns it as count_data() would have
/// returned it if nothing were lazy. `indexes` are the new indexes of its files.
DataSet counted_data(const PipelineSpec& spec, DataSet data, std::vector<io::FileIndex> indexes);

}  // namespace feedline::flow
