// The files of a pipeline, counted and verified: what the plan is computed from.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "flowgraph/spec.h"
#include "io/index.h"
#include "io/read_backend.h"

namespace feedline::flow {

struct DataFile {
  io::FileId id;
  uint32_t source = 0;
  io::FileIndex index;
  uint64_t first_record = 0;  // number of its first record in the source: good ones of the source's files before it
};

struct DataSet {
  std::vector<DataFile> files;  // in the order of the sources and their files
  uint64_t records = 0;         // that can be delivered: good, and before the first error where errors are raised
  uint64_t bytes = 0;           // of all files, as they lie on disk
  double count_s = 0;

  /// What was found bad and left out, in order (SKIP_RECORD: each region; SKIP_FILE: each file, by its first).
  std::vector<Error> skipped;
  /// RAISE: the first error; the data ends in front of it.
  std::vector<Error> raised;  // none or one
};

/// The counting pass: reads every byte of every file, on `threads` threads, several files at once. Applies
/// errors.on_error; throws Error where max_failures or max_failure_rate are exceeded, and io_error.
DataSet count_data(const PipelineSpec& spec, int threads,
                   const std::function<void(uint64_t done, uint64_t total)>& on_progress);

}  // namespace feedline::flow
