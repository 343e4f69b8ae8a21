// The files of a pipeline, counted and verified: what the plan is computed from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flowgraph/data/selection.h"
#include "flowgraph/pipeline/spec.h"
#include "io/index/index.h"
#include "io/read/read_backend.h"

namespace feedline::flow {

struct DataFile {
  io::FileId id;
  uint32_t source = 0;
  io::FileIndex index;
  uint64_t first_record = 0;  // number of its first record in the source: good ones of the source's files before it
  Selection samples;
  // Found by apply_filter() (flowgraph/feed/filter.h):
  std::optional<uint64_t> kept_audit = {};  // of the samples: sum of the audit terms, with their key (base/audit.h)
  std::shared_ptr<const NumberSet> key_changes = {};  // the samples whose window.key is not that of the one before them
  bool compressed() const noexcept { return index.compression != Compression::none; }
  /// What a pass over the samples adds to the audit, with the file's key (flowgraph/plan/pass_audit.h).
  std::optional<uint64_t> pass_audit = {};
};

/// Files [first, last) of a data set.
struct FileRange {
  uint32_t first = 0, last = 0;
  bool has(uint32_t file) const noexcept { return file >= first && file < last; }
  uint32_t count() const noexcept { return last - first; }
};

struct DataSet {
  std::vector<DataFile> files;  // in the order of the sources and their files
  FileRange all_files() const noexcept { return {0, static_cast<uint32_t>(files.size())}; }
  FileRange files_of(uint32_t source) const noexcept;
  std::span<const DataFile> in(FileRange range) const noexcept {
    return std::span(files).subspan(range.first, range.count());
  }
  uint64_t samples = 0;        // that are fed in a pass: good, chosen, and before the first error where they are raised
  uint64_t bytes = 0;          // of all files, as they lie on disk
  uint64_t counted_bytes = 0;  // of those that had no valid index; among ranks, this one's share
  double count_s = 0;

  /// index.mode LAZY, and not all of it has a valid index: there are no counts, samples nor digest, and of an index
  /// only `largest_record`, which is record_limit.
  bool lazy = false;

  /// Of the names (without folders), sizes, counts and audit sums of all files in their order, before anything is left
  /// out: the same data has the same digest, wherever it lies and whenever it was written.
  uint64_t digest = 0;

  /// What was found bad and left out, in order (SKIP_RECORD: each region; SKIP_FILE: each file, by its first): the
  /// first 100, and in all.
  std::vector<Error> skipped;
  uint64_t skipped_total = 0;
  void skip(Error error) {
    if (skipped_total++ < 100) skipped.push_back(std::move(error));
  }
  /// Why pass_audit is not known, for people; empty: it is.
  std::string no_pass_audit = "nobody has summed it up";
  /// RAISE: the error that the data ends with.
  std::vector<Error> raised;  // none or one

  /// Indexes that do not hold or cannot be kept, shards that dataset_info.json knows otherwise.
  std::vector<std::string> warnings;
};

/// The key of each file's audit terms (base/audit.h), which says which file of which source it is.
std::vector<uint64_t> audit_keys(std::span<const DataFile> files);

/// What range, num_shards and shard_id choose of each source: numbers the records and sets the samples of the files and
/// in all. Under RAISE the data ends at the first known error that lies in what is chosen.
void choose_samples(const PipelineSpec& spec, DataSet& data);

}  // namespace feedline::flow
