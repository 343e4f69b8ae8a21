// What is read at a time: a few hundred KiB of records, wherever they lie.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/data/data_set.h"

namespace feedline::flow {

/// Good records that lie one after another without a gap. Those in front, up to a place that the index knows, are
/// passed over.
struct Extent {
  uint32_t file = 0;
  uint64_t offset = 0, length = 0;  // in the file, or in its inflated stream
  uint32_t skip = 0;                // records in front
  uint32_t rows = 0;                // records then
  uint32_t first_row = 0;           // of the ticket
  uint64_t first_record = 0;        // number in its file of the first row
  const NumberSet* kept = nullptr;  // of the file's records: only these are rows; null: all
  /// Number in its file of a row of the ticket.
  uint64_t record_of(uint32_t row) const noexcept {
    const uint64_t in_extent = row - first_row;
    return kept && in_extent > 0 ? kept->at(kept->before(first_record) + in_extent) : first_record + in_extent;
  }
};

struct Ticket {
  std::vector<Extent> extents;  // none: the ticket only brings the end of an epoch
  uint32_t rows = 0;            // of all extents together
  uint64_t audit = 0;           // LAZY, of the end of a pass: what it held, as Plan::expected_audit

  uint64_t bytes() const noexcept;
  /// Appends rows: the samples [first, first + count) of a file.
  void add(const DataSet& data, uint32_t file, uint64_t first, uint64_t count);
};

/// What a ticket's bytes take of a slot: those of a compressed file lie one after another; any other extent is read in
/// whole blocks (io::Read::capacity_for).
uint64_t slot_bytes(const Ticket& ticket, bool compressed) noexcept;
/// The most that an extent takes of a slot beside its own bytes.
inline constexpr uint64_t bytes_around_extent = 2 * io::block_bytes;

/// Records that are read together, cut where the index knows a place.
struct Block {
  uint32_t file = 0;
  uint32_t begin = 0, end = 0;  // entries [begin, end) of its file's index
  uint64_t first = 0;           // sample of its file
  uint32_t rows = 0;            // samples: at least one
  uint64_t bytes = 0;           // of good records
};

/// In file order: the sources one after another, their files in order, records from front to back.
using Blocks = std::vector<Block>;

/// How much one block may hold, what is read around its gaps included. A single stride of the index may exceed it: that
/// is a block of its own.
struct BlockLimits {
  uint64_t bytes = 0;
  uint64_t rows = 0;
};
Blocks cut_by_size(const DataSet& data, FileRange files, const BlockLimits& limits);

/// The records that begin in [k S, (k+1) S) of a file are a block. Precondition: the strides of all indexes divide S.
Blocks cut_by_place(const DataSet& data, FileRange files, uint64_t block_bytes);

}  // namespace feedline::flow
