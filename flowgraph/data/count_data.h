// Finds out from their indexes what a pipeline's files hold. The records of files without an index are counted.
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
/// time. The new indexes are stored (io/index/index_store.h). The index of a file below 1 MiB is stored only if the
/// source has an `index` field that asks for it (IndexSpec::given), because counting so small a file again takes no
/// longer than reading its index.
///
/// Applies errors.on_error and chooses the samples. Throws Error if max_failures or max_failure_rate is exceeded, or if
/// index.mode is REQUIRE and an index is missing; throws Error io_error if a file cannot be read. Calls `on_progress`
/// with the number of bytes that are counted so far, and of all bytes to count. It may be called from any thread, but
/// never from two at the same time.
///
/// All ranks in `ranks` must call this function. Either all of them get the same data, or all throw. Each rank counts
/// its share (flowgraph/data/index_files.h).
DataSet count_data(const PipelineSpec& spec, int threads,
                   const std::function<void(uint64_t done, uint64_t total)>& on_progress, RankGroup& ranks);
/// Does the same for a single rank.
DataSet count_data(const PipelineSpec& spec, int threads,
                   const std::function<void(uint64_t done, uint64_t total)>& on_progress);

/// Completes data that was lazy (DataSet::lazy) after the feed has counted its records. Returns what count_data() would
/// have returned without index.mode LAZY. `indexes` are the new indexes of the data's files.
DataSet counted_data(const PipelineSpec& spec, DataSet data, std::vector<io::FileIndex> indexes);

}  // namespace feedline::flow
