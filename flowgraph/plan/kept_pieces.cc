#include "flowgraph/plan/kept_pieces.h"

#include <algorithm>

#include "base/audit.h"
#include "base/mul_div.h"
#include "flowgraph/data/file_pieces.h"
#include "flowgraph/order/permutation.h"
#include "io/cache/entry_store.h"

namespace feedline::flow {
namespace {

// At the default stride a unit of an uncompressed file is 256 KiB. So the pieces that a read of some 100 KiB does not
// find in the cache mostly lie side by side.
constexpr uint64_t pieces_of_unit = 16;

}  // namespace

KeptPieces::KeptPieces(const DataSet& data) {
  for (const DataFile& file : data.files) {
    FileUnits& of = units_of_.emplace_back();
    of.first_unit = units_.size();
    const uint64_t samples = file.samples.samples();
    if (samples == 0) continue;
    (file.compressed() ? compressed_ : plain_)++;
    const uint64_t first = file.samples.record(0), last = file.samples.record(samples - 1);
    const auto& entries = file.index.entries;
    for_each_piece(file.index, entries.front().offset, entries.back().offset, [&](const Piece& piece) {
      if (piece.end_record <= first || piece.first_record > last) return;
      if (of.first_piece > of.last_piece) {
        of.first_piece = piece.number;
        of.pieces = file.compressed() ? pieces_of(file.index) : pieces_of_unit;
      }
      of.last_piece = piece.number;
      const uint64_t in_file = piece.number - of.first_piece;
      units_.resize(of.first_unit + in_file / of.pieces + 1);
      Unit& unit = units_.back();
      unit.entries = in_file % of.pieces + 1;
      unit.bytes += round_up(piece.bytes, io::entry_alignment);
      unit.samples += file.samples.before(piece.end_record) - file.samples.before(piece.first_record);
      unit.compressed = file.compressed();
    });
  }
  first_entry_.assign(units_.size(), none);
}

template <typename Fits>
void KeptPieces::keep_while(uint64_t limit, uint64_t row_bytes, Fits fits) {
  const Permutation order(units_.size(), hash64("cache"));
  for (const Unit& unit : units_)
    if (unit.entries > 0 && (too_large_.entries == 0 || unit.bytes < too_large_.bytes)) too_large_ = unit;
  for (uint64_t place = 0; place < units_.size(); place++) {
    const uint64_t number = order(place);
    const Unit& unit = units_[number];
    if (unit.entries == 0 || unit.bytes + unit.entries * row_bytes > limit) continue;
    const io::EntryLayout with{layout_.entries + unit.entries, layout_.data_bytes + unit.bytes};
    if (!fits(with)) {
      if (samples_ == 0) too_large_ = unit;
      break;
    }
    first_entry_[number] = layout_.entries;
    layout_ = with;
    samples_ += unit.samples;
    if (unit.compressed) kept_compressed_++;
  }
  units_ = {};
}

void KeptPieces::keep(uint64_t limit, uint64_t room, uint64_t row_bytes) {
  keep_while(limit, row_bytes,
             [&](const io::EntryLayout& with) { return with.data_bytes + with.entries * row_bytes <= room; });
}

void KeptPieces::keep_entries(uint64_t limit, uint64_t entries, uint64_t row_bytes) {
  keep_while(limit, row_bytes, [&](const io::EntryLayout& with) { return with.entries <= entries; });
}

}  // namespace feedline::flow
