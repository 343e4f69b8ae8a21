// Chooses the pieces of files that are kept in a cache of records.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "flowgraph/data/data_set.h"
#include "io/cache/entry_file.h"

namespace feedline::flow {

/// Files are cut into pieces (flowgraph/data/file_pieces.h), and the pieces are grouped into units. The units are put
/// into a random order, which is the same in every run, and the first of them are kept. A unit of a compressed file is
/// the whole file, because its sections are inflated up to the last piece that is not in the cache. Other units are
/// some neighbouring pieces. A unit that is larger than the limit by itself is never kept.
class KeptPieces {
 public:
  struct Unit {  // `bytes` are the contents of its entries, without KeptPieces::keep()'s `row_bytes`
    uint64_t entries = 0, bytes = 0, samples = 0;
    bool compressed = false;
  };

  /// Cuts the files into units: from the piece of the first sample of a file up to the piece of its last sample.
  explicit KeptPieces(const DataSet& data);

  /// Keeps as many units as fit into `room` bytes, which are at most `limit`. `row_bytes` is what an entry takes in
  /// addition to its content. Call either this or keep_entries(), once.
  void keep(uint64_t limit, uint64_t room, uint64_t row_bytes);
  /// Keeps the same units as an earlier run with the same limit, whose keep() has left a cache file with `entries`
  /// entries.
  void keep_entries(uint64_t limit, uint64_t entries, uint64_t row_bytes);

  /// Returns the numbers of entries and of bytes of the kept pieces.
  const io::EntryLayout& layout() const noexcept { return layout_; }
  /// Returns how many samples lie in kept pieces.
  uint64_t samples() const noexcept { return samples_; }
  /// If nothing is kept, returns a unit that is too large: the first unit that did not fit, or the smallest one if all
  /// units are larger than the limit.
  const Unit& too_large() const noexcept { return too_large_; }
  /// Returns how many files are compressed, and how many of these are kept.
  uint64_t compressed() const noexcept { return compressed_; }
  uint64_t kept_compressed() const noexcept { return kept_compressed_; }
  /// Returns how many files are not compressed. Files without samples are counted neither here nor by compressed().
  uint64_t plain() const noexcept { return plain_; }
  uint64_t memory_bytes() const noexcept { return first_entry_.size() * sizeof(uint64_t); }

  /// Returns the number of the entry of a piece; nullopt if the piece is not kept. `file` is an index in
  /// DataSet::files.
  std::optional<uint64_t> entry_of(uint32_t file, uint64_t piece) const noexcept {
    const FileUnits& of = units_of_[file];
    if (piece < of.first_piece || piece > of.last_piece) return std::nullopt;
    const uint64_t in_file = piece - of.first_piece;
    const uint64_t first = first_entry_[of.first_unit + in_file / of.pieces];
    return first == none ? std::nullopt : std::optional(first + in_file % of.pieces);
  }

 private:
  static constexpr uint64_t none = std::numeric_limits<uint64_t>::max();
  struct FileUnits {
    uint64_t first_piece = 1, last_piece = 0;  // numbers of pieces; first > last: the file has no samples
    uint64_t first_unit = 0;
    uint64_t pieces = 1;  // the number of pieces in a unit
  };
  template <typename Fits>
  void keep_while(uint64_t limit, uint64_t row_bytes, Fits fits);

  std::vector<FileUnits> units_of_;    // by file
  std::vector<Unit> units_;            // empty once the units to keep have been chosen
  std::vector<uint64_t> first_entry_;  // by unit; none: the unit is not kept
  io::EntryLayout layout_;
  Unit too_large_;
  uint64_t samples_ = 0, compressed_ = 0, kept_compressed_ = 0, plain_ = 0;
};

}  // namespace feedline::flow
