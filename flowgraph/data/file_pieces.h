// Cuts files into pieces: at the offsets that a file's index knows, and at its bad regions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowgraph/data/bad_bytes.h"
#include "io/index/index.h"

namespace feedline::flow {

/// Neighbouring good records of a file, between two offsets that the index knows. A piece is mostly one stride of the
/// file. Each extent of a ticket, which is read in one go, consists of whole pieces.
struct Piece {
  uint64_t number = 0;                        // ascending in the file, below pieces_of(); some numbers are not used
  uint64_t offset = 0, bytes = 0;             // bytes of the file, or of its inflated stream
  uint64_t first_record = 0, end_record = 0;  // the numbers of its records in the file: [first_record, end_record)
};

/// Returns a number above Piece::number of all pieces of the file.
inline uint64_t pieces_of(const io::FileIndex& index) noexcept { return index.entries.size() + index.bad.size(); }

/// Calls `each(const Piece&)` for the pieces between the offsets `from` and `until`, in their order. Precondition: both
/// are borders of pieces of the file.
template <typename Each>
void for_each_piece(const io::FileIndex& index, uint64_t from, uint64_t until, Each&& each) {
  if (from >= until) return;
  const auto after = std::upper_bound(index.entries.begin(), index.entries.end(), from,
                                      [](uint64_t at, const io::IndexEntry& entry) { return at < entry.offset; });
  auto entry = static_cast<uint64_t>(after - index.entries.begin()) - 1;  // the last entry at or before `from`
  auto bad = first_bad_from(index, from);
  uint64_t record = index.entries[entry].record;
  if (bad != index.bad.begin()) record = std::max(record, bad[-1].record);
  for (uint64_t at = from; at < until;) {
    const io::IndexEntry& next = index.entries[entry + 1];
    const bool ends_bad = bad != index.bad.end() && bad->offset < next.offset;
    const uint64_t end = ends_bad ? bad->offset : next.offset, end_record = ends_bad ? bad->record : next.record;
    if (end > at) each(Piece{entry + static_cast<uint64_t>(bad - index.bad.begin()), at, end - at, record, end_record});
    record = end_record;
    at = end;
    if (ends_bad) at += bad++->length;
    while (entry + 2 < index.entries.size() && index.entries[entry + 1].offset <= at) entry++;
  }
}

}  // namespace feedline::flow
