// Fills in the indexes of a data set's files: reads the kept ones, and makes the others by counting, which ranks share.
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

/// Returns whether the index of a file is stored: if it saves reading more than it costs to open, or if the pipeline says
/// where indexes are or that they are made before the start (IndexSpec::given).
bool keeps_index(const SourceSpec& source, const io::FileId& file);

/// Returns the options with which the files of a source are counted.
io::CountOptions count_options(const SourceSpec& source);

/// Returns the error that the lists of bad regions take more than half of memory.limit. `regions` is how many were
/// found, and `last` describes the last one.
Error bad_regions_fill_memory(const PipelineSpec& spec, uint64_t regions, const Error& last);

/// Fills in every file's index, as count_data() describes it. All ranks must list the same files.
///
/// The files of which no rank has a valid index are laid end to end and cut into equal parts, one for each rank. A
/// plain file that lies in several parts is counted in parts (io/index/count_records.h), which every rank then joins.
/// Any other file goes to the rank in whose part it begins. Each rank tells all others what it has counted, and the
/// indexes that it has and others lack. An index is kept by the rank that counted the file, or the first part of it.
///
/// Throws Error as soon as more regions were found bad than max_failures allows, or the list of bad regions takes more
/// than half of memory.limit. With LAZY, if an index is missing that is to be kept, counts nothing and sets `data.lazy`.
void index_files(const PipelineSpec& spec, DataSet& data, WorkerArena& arena, RankGroup& ranks,
                 const std::function<void(uint64_t done, uint64_t total)>& on_progress);

}  // namespace feedline::flow
