// Fills in the indexes of a data set's files: reads those that are stored, and makes the others by counting records.
// The ranks share the counting.
#pragma once

#include <cstdint>
#include <functional>

#include "io/index/count_records.h"
#include "io/read/read_backend.h"

namespace feedline {
class RankGroup;
class WorkerArena;
}  // namespace feedline

namespace feedline::flow {

struct PipelineSpec;
struct SourceSpec;
struct DataSet;

/// Returns whether the index of a file is stored. It is if the file is so large that the index saves more reading than
/// it costs to open, or if the pipeline asks for an index of each file (IndexSpec::given).
bool keeps_index(const SourceSpec& source, const io::FileId& file);

/// Returns the options with which the records of a source's files are counted.
io::CountOptions count_options(const SourceSpec& source);

/// Returns the Error which says that the lists of bad regions take more than half of memory.limit. `regions` is how
/// many were found, and `last` describes the last one.
Error bad_regions_fill_memory(const PipelineSpec& spec, uint64_t regions, const Error& last);

/// Fills in every file's index, as count_data() describes it. All ranks must list the same files.
///
/// The files of which no rank has a valid index are laid end to end and cut into equal shares, one for each rank. A
/// plain file that lies in several shares is counted in parts (io/index/count_records.h), which every rank then joins.
/// Any other file is counted by the rank in whose share it begins. Each rank sends all other ranks what it has counted.
/// If some ranks have a file's index and others lack it, the first of the ranks that have it sends it to all ranks. A
/// new index is stored by the rank that counted the file or the file's first part. A rank that has much to tell tells it
/// in several messages: a message ends with the index that makes it `message_bytes` long, because indexes of compressed
/// files are large.
///
/// Throws Error as soon as more bad regions were found than max_failures allows, or the list of bad regions takes more
/// than half of memory.limit. With LAZY, counts nothing and sets `data.lazy` if an index is missing for which
/// keeps_index() is true, or if the files without an index have 1 MiB or more together.
void index_files(const PipelineSpec& spec, DataSet& data, WorkerArena& arena, RankGroup& ranks,
                 const std::function<void(uint64_t done, uint64_t total)>& on_progress,
                 size_t message_bytes = 256 << 20);

}  // namespace feedline::flow
