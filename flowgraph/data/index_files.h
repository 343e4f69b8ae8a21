// The indexes of a data set's files: those that are kept, and of the rest by counting, which ranks share.
#pragma once

#include <cstdint>
#include <functional>

#include "io/index/count_records.h"

namespace feedline {
class RankGroup;
}

namespace feedline::flow {

struct PipelineSpec;
struct SourceSpec;
struct DataSet;
class WorkerArena;

/// How the files of a source are counted.
io::CountOptions count_options(const SourceSpec& source);

/// The error that the lists of bad regions take more than half of memory.limit. regions: how many were found; last: the
/// last one of them.
Error bad_regions_fill_memory(const PipelineSpec& spec, uint64_t regions, const Error& last);

/// Fills in every file's index; as count_data() says. All ranks list the same files. Those of which no rank has a valid
/// index are laid one behind the other and cut into equal parts, one for each rank; a plain file that lies in several
/// is counted in parts (io/index/count_records.h) and joined by all, any other goes to the rank in whose part it begins. What
/// a rank has counted, or has an index of and others have not, is told to all. An index is kept by the rank that has
/// counted the file, or its first part. Counting ends with an Error as soon as the regions that were found bad exceed
/// max_failures, or take more than half of memory.limit. LAZY: where an index is missing, nothing is counted and
/// `data.lazy` set.
void index_files(const PipelineSpec& spec, DataSet& data, WorkerArena& arena, RankGroup& ranks,
                 const std::function<void(uint64_t done, uint64_t total)>& on_progress);

}  // namespace feedline::flow
