// A ticket is what is read at a time: a few hundred KiB of records from one place or from several. Files are cut into
// blocks, so that a block can be read as one ticket.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/data/data_set.h"

namespace feedline::flow {

/// A contiguous stretch of a file that contains only good records. It must begin at an offset that the index knows, so
/// its first `skip` records may be unwanted. Of the records after these, the wanted ones are the rows.
struct Extent {
  uint32_t file = 0;
  uint64_t offset = 0, length = 0;  // bytes of the file, or of its inflated stream
  uint32_t skip = 0;                // the number of records before the first row, which are skipped
  uint32_t rows = 0;                // the number of rows
  uint32_t first_row = 0;           // the number that the first row has in the ticket
  uint64_t first_record = 0;        // the number of the first row's record in its file
  const NumberSet* kept = nullptr;  // the records of the file that the filter keeps; null: all
  /// Returns the number, in its file, of the record that is row `row` of the ticket.
  uint64_t record_of(uint32_t row) const noexcept {
    const uint64_t in_extent = row - first_row;
    return kept && in_extent > 0 ? kept->at(kept->before(first_record) + in_extent) : first_record + in_extent;
  }
};

/// The extents that are read together into one slot.
struct Ticket {
  std::vector<Extent> extents;  // if there are none, the ticket only stands for the end of an epoch
  uint32_t rows = 0;            // the rows of all extents
  uint64_t audit = 0;           // LAZY: if the ticket ends a pass, the audit of the pass (Schedule::expected_audit)
  bool inflates = false;        // some extents lie in compressed files, so a FileInflater reads all of them
  bool scattered = false;       // its samples come from random places, so no other ticket goes on where it ends

  /// Returns the length of all extents together.
  uint64_t bytes() const noexcept;
  /// Returns an upper bound for the bytes that the payloads of its records have together.
  uint64_t payload_bytes() const noexcept;
  /// Appends the samples [first, first + count) of a file as rows.
  void add(const DataSet& data, uint32_t file, uint64_t first, uint64_t count);
};

/// Returns how many bytes a ticket takes in a slot, the memory that it is read into. What an inflater reads lies without
/// gaps in the slot. Any other extent is read in whole disk blocks (io::Read::capacity_for).
uint64_t slot_bytes(const Ticket& ticket) noexcept;
/// An extent of n bytes takes at most n + bytes_around_extent bytes in a slot, because a read is widened to whole disk
/// blocks at both ends.
inline constexpr uint64_t bytes_around_extent = 2 * io::block_bytes;

/// Consecutive records of a file that are read together, and in BLOCK are shuffled together. Its borders are offsets
/// that the index knows.
struct Block {
  uint32_t file = 0;
  uint32_t begin = 0, end = 0;  // the entries [begin, end) of the file's index
  uint64_t first = 0;           // the number, in the file, of the block's first sample
  uint32_t rows = 0;            // the number of samples; at least one
  uint64_t bytes = 0;           // bytes of good records
};

/// Blocks in file order: the sources one after another, their files in order, the records from front to back.
using Blocks = std::vector<Block>;

/// The maximum size of a block. `bytes` include what is read around bad regions. If the records between two
/// neighbouring index entries exceed the limits, they are a block of their own.
struct BlockLimits {
  uint64_t bytes = 0;
  uint64_t rows = 0;
};
/// Returns the largest distance between two places of a compressed file at which inflating can begin, in bytes of the
/// inflated stream; 0 if the file is not compressed.
uint64_t longest_section(const io::FileIndex& index) noexcept;
/// The longest section for which a compressed file is shuffled. Longer ones come from streams with hardly any blocks.
constexpr uint64_t most_of_section(uint64_t stride) noexcept { return 64 * io::seek_spacing(stride); }

/// Cuts files into blocks that are as large as the limits allow. In a compressed file, the first index entry at or
/// after each seek point is a border, too, so that a block is inflated from its own beginning.
Blocks cut_by_size(const DataSet& data, FileRange files, const BlockLimits& limits);

/// Cuts files by offset: a block is the records that begin in [k S, (k+1) S) of a file, where S is `block_bytes`. In a
/// compressed file, a block ends at the first index entry at or after the first seek point from (k+1) S on instead.
/// Throws Error bad_pipeline if a block would have 2^32 samples or more. Precondition: the strides of all indexes
/// divide S.
Blocks cut_by_place(const DataSet& data, FileRange files, uint64_t block_bytes);

}  // namespace feedline::flow
