// What a cache keeps: which samples, and how many bytes they take. Decided before the start.
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

/// The parts of a cache: what is kept of each sample. Outputs that need the same bytes of the same feature share a
/// part.
struct CacheParts {
  explicit CacheParts(const PipelineSpec& spec);
  struct Part {
    int output;   // the first output that it is for
    int feature;  // the feature that it is made from
    KeptStep step;
  };
  std::vector<Part> parts;
  std::vector<int> of_output;  // by output: the number of its part; -1: nothing of it is kept
};

/// Some parts of a sample have a size that depends on the sample. This says how many bytes these parts take together.
/// The figures are estimated from some of the samples.
struct KeptSizes {
  double mean = 0;    // bytes of a sample
  double error = 0;   // the standard error of the mean
  double spread = 0;  // the standard deviation of a sample
};

/// The samples that are kept are the first `kept` of all samples in a random order, which is the same in every run. So
/// the share of samples that are found is kept / samples in every epoch and order, and nothing is thrown out to make
/// room. For RECORDS, the samples in the KeptPieces are kept instead.
class CachePlan {
 public:
  /// Plans the cache of a pipeline that has one. For DISK it looks at the cache file if there is one, otherwise at the
  /// free space of the disk. `sizes` are not used for RECORDS. Throws Error bad_pipeline if the limit is too small for
  /// one sample, or for one unit of records.
  CachePlan(const PipelineSpec& spec, const DataSet& data, const KeptSizes& sizes);

  const CacheSpec& spec() const noexcept { return spec_; }
  const CacheParts& parts() const noexcept { return parts_; }
  uint64_t samples() const noexcept { return samples_; }
  uint64_t kept() const noexcept { return kept_; }
  double share() const noexcept { return static_cast<double>(kept_) / static_cast<double>(samples_); }
  /// Returns the layout of the store, which has one entry for each part of each sample that is kept or, for RECORDS,
  /// for each piece.
  const io::EntryLayout& layout() const noexcept { return layout_; }
  /// Returns the bytes of memory that the store takes.
  uint64_t store_bytes() const noexcept;
  /// Returns the bytes of memory that the store and the plan take together.
  uint64_t memory_bytes() const noexcept { return store_bytes() + (pieces_ ? pieces_->memory_bytes() : 0); }
  /// Returns the bytes of memory that each thread takes for an entry while the entry is read from a disk, or made for a
  /// disk.
  uint64_t scratch_bytes() const noexcept;
  // DISK: path() is the cache file. prefix() is the beginning of the names of all files for the same choice among the
  // same data files; only the file at path() is used again. content() is the digest of what the file holds.
  const std::string& path() const noexcept { return path_; }
  const std::string& prefix() const noexcept { return prefix_; }
  uint64_t content() const noexcept { return content_; }
  /// Returns why nothing is kept although the pipeline has a cache; empty if something is kept.
  const std::string& why_off() const noexcept { return why_off_; }

  /// RECORDS: returns the pieces that are kept; null for pictures.
  const KeptPieces* pieces() const noexcept { return pieces_ ? &*pieces_ : nullptr; }
  /// Returns the number of the entry of part 0 of a record; the entries of its other parts follow. Returns nullopt if
  /// the record is not kept. `file` and `record` are numbers as in Extent. Preconditions: the record is a sample, and
  /// the cache is not one of RECORDS.
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
