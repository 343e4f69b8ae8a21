// The files of a pipeline, with their indexes, from which the plan is computed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
  uint64_t first_record = 0;  // the number of good records in the files of the same source before this one
  Selection samples;
  bool left_out = false;  // with SKIP_FILE: the file has a bad region, and counts as a file without records
  // apply_filter() (flowgraph/feed/filter.h) sets these two:
  std::optional<uint64_t> kept_audit = {};  // audit of the samples that the filter keeps, times the file's key
  std::shared_ptr<const NumberSet> key_changes = {};  // the samples whose window.key differs from the sample before
  bool compressed() const noexcept { return index.compression != Compression::none; }
  /// Returns the file's name without its folder.
  std::string_view name() const noexcept { return std::string_view(id.uri).substr(id.uri.rfind('/') + 1); }
  /// The audit (sum of hashes) of one pass over the file's samples, already multiplied by the file's key
  /// (flowgraph/plan/pass_audit.h).
  std::optional<uint64_t> pass_audit = {};
};

/// The files [first, last) of a data set.
struct FileRange {
  uint32_t first = 0, last = 0;
  bool has(uint32_t file) const noexcept { return file >= first && file < last; }
  uint32_t count() const noexcept { return last - first; }
};

struct DataSet {
  std::vector<DataFile> files;  // in the order of the sources and their files
  FileRange all_files() const noexcept { return {0, static_cast<uint32_t>(files.size())}; }
  /// Returns the files of a source, which is given by its number.
  FileRange files_of(uint32_t number) const noexcept;
  std::span<const DataFile> in(FileRange range) const noexcept {
    return std::span(files).subspan(range.first, range.count());
  }
  /// Returns the size in bytes of the largest record of the files in `range`.
  uint64_t largest_record(FileRange range) const noexcept;
  uint64_t largest_record() const noexcept { return largest_record(all_files()); }
  uint64_t samples = 0;        // samples of a pass, of all files together
  uint64_t records = 0;        // good records of all files together; 0 if nothing has been counted
  uint64_t bytes = 0;          // size on disk of all files together
  uint64_t counted_bytes = 0;  // bytes of the files that had no valid index; if ranks share them, this rank's share
  double count_s = 0;

  /// True if index.mode is LAZY and some files have no valid index. Then nothing has been counted: there are no samples
  /// and no digest, and each index holds only `largest_record`: the source's record_limit, or what fits into the file.
  bool lazy = false;

  /// A digest of the names (without folders), sizes, counts and audit sums of all files in their order, before anything
  /// is left out. The same data has the same digest, in whatever folder it lies, and whenever it was written.
  uint64_t digest = 0;

  /// Errors that describe what was found bad and therefore left out, in file order: with SKIP_RECORD one for each bad
  /// region; with SKIP_FILE one for each file, namely the error of its first bad region. `skipped` holds the first 100,
  /// `skipped_total` counts all.
  std::vector<Error> skipped;
  uint64_t skipped_total = 0;
  void skip(Error error) {
    if (skipped_total++ < 100) skipped.push_back(std::move(error));
  }
  /// Text for the user: why DataFile::pass_audit is not known. Empty if it is known.
  std::string no_pass_audit = "the audit of a pass has not been computed";
  std::vector<Error> raised;  // with RAISE: the error that ends the feed, if there is one

  /// Warnings: indexes that are not valid or cannot be kept, and shards whose number of records differs from the number
  /// in dataset_info.json.
  std::vector<std::string> warnings;
};

/// Returns for each file the key by which its audit terms are multiplied (base/audit.h). Each file of each source has a
/// key of its own.
std::vector<uint64_t> audit_keys(std::span<const DataFile> files);

/// Chooses the samples of each source by its `range`, `num_shards` and `shard_id`. Sets DataFile::first_record and
/// DataFile::samples of each file, and DataSet::samples. With errors.on_error RAISE the samples end at the first bad
/// region within the chosen records, whose Error becomes DataSet::raised.
void choose_samples(const PipelineSpec& spec, DataSet& data);

}  // namespace feedline::flow
