// Decides, before the feed starts, which samples a cache keeps, and plans the bytes that they take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flowgraph/data/data_set.h"
#include "flowgraph/order/permutation.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/kept_pieces.h"
#include "io/cache/entry_file.h"

namespace feedline::flow {

/// The parts of a cache: what it keeps of each sample. Outputs that need the same bytes of the same feature share a
/// part.
struct CacheParts {
  explicit CacheParts(const PipelineSpec& spec);
  struct Part {
    int output;   // the first output that it is for
    int feature;  // the feature that it is made from
    KeptStep step;
  };
  std::vector<Part> parts;
  std::vector<int> of_output;  // by output: the number of its part; -1: the cache keeps nothing for it
};

/// Some parts of a sample have a size that depends on the sample. This says how many bytes these parts take together.
/// The figures are estimated from some of the samples.
struct KeptSizes {
  double mean = 0;    // the mean of a sample's bytes
  double error = 0;   // the standard error of the mean
  double spread = 0;  // the standard deviation of a sample's bytes
};

/// A cache of pictures keeps the first `kept` of all samples in a random order, which is the same in every run. So in
/// every epoch and order the share of samples that are found in the cache is kept / samples, and nothing is evicted.
/// With cache.what RECORDS, KeptPieces chooses what is cached instead.
class CachePlan {
 public:
  /// Plans the cache of a pipeline that has one. For DISK it looks at the cache file if there is one, otherwise at the
  /// free space of the disk. `sizes` are not used for RECORDS. Throws Error bad_pipeline if the limit is too small for
  /// one sample, or for one unit of KeptPieces.
  CachePlan(const PipelineSpec& spec, const DataSet& data, const KeptSizes& sizes);

  const CacheSpec& spec() const noexcept { return spec_; }
  const CacheParts& parts() const noexcept { return parts_; }
  uint64_t samples() const noexcept { return samples_; }
  uint64_t kept() const noexcept { return kept_; }
  double share() const noexcept { return static_cast<double>(kept_) / static_cast<double>(samples_); }
  /// Returns the layout of the cache's store. It has one entry for each part of each cached sample or, for RECORDS, for
  /// each cached piece of a file.
  const io::EntryLayout& layout() const noexcept { return layout_; }
  /// Returns the bytes of memory that the store takes.
  uint64_t store_bytes() const noexcept;
  /// Returns the bytes of memory that the store and the plan take together.
  uint64_t memory_bytes() const noexcept { return store_bytes() + (pieces_ ? pieces_->memory_bytes() : 0); }
  /// Returns the bytes of memory that each thread takes for an entry while the entry is read from a disk, or is made in
  /// order to be written to a disk.
  uint64_t scratch_bytes() const noexcept;
  // DISK: path() is the cache file. prefix() begins the names of all cache files for the same choice of samples from
  // the same data files. Of these files only the one at path() is used. content() is the digest of what that file
  // holds.
  const std::string& path() const noexcept { return path_; }
  const std::string& prefix() const noexcept { return prefix_; }
  uint64_t content() const noexcept { return content_; }
  /// Returns why nothing is cached although the pipeline has a cache; empty if something is cached.
  const std::string& why_off() const noexcept { return why_off_; }

  /// RECORDS: returns the pieces of files that are cached; null for a cache of pictures.
  const KeptPieces* pieces() const noexcept { return pieces_ ? &*pieces_ : nullptr; }
  /// Returns the number of the entry of part 0 of a record; the entries of its other parts follow. Returns nullopt if
  /// the record is not cached. `file` is an index in DataSet::files, and `record` the record's number in that file.
  /// Preconditions: the record is a sample, and the cache is not one of RECORDS.
  std::optional<uint64_t> entry_of(uint32_t file, uint64_t record) const noexcept {
    const uint64_t place = order_(first_sample_[file] + selections_[file].before(record));
    return place < kept_ ? std::optional(place * parts_.parts.size()) : std::nullopt;
  }

  /// Returns lines for the user.
  std::string text(const PipelineSpec& spec) const;

 private:
  std::optional<uint64_t> room(const PipelineSpec& spec, const DataSet& data);
  void choose_file(const PipelineSpec& spec, const DataSet& data);
  void keep_samples(const PipelineSpec& spec, const DataSet& data, const KeptSizes& sizes);
  void keep_pieces(const PipelineSpec& spec, const DataSet& data);
  void refuse_if_none(uint64_t room, uint64_t bytes, const char* what);
  std::string text_of_pieces() const;

  CacheSpec spec_;
  CacheParts parts_;
  uint64_t samples_, kept_ = 0;
  double sample_bytes_ = 0;  // bytes of a sample on average, as planned
  Permutation order_;
  std::vector<uint64_t> first_sample_;  // by file: the number of its first sample
  std::vector<Selection> selections_;   // by file
  std::optional<KeptPieces> pieces_;    // RECORDS
  io::EntryLayout layout_;
  std::string path_, prefix_, why_off_;
  uint64_t content_ = 0;
};

}  // namespace feedline::flow
