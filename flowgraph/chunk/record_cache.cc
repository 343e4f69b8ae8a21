#include "flowgraph/chunk/record_cache.h"

#include <algorithm>
#include <array>
#include <optional>

#include "flowgraph/data/file_pieces.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {
namespace {

// Returns the number of a piece's entry in the store. Returns nullopt if there is none: a file on the disk that a
// different process has made may have fewer entries.
std::optional<uint64_t> entry_of(const Plan& plan, const io::EntryStore& store, uint32_t file, const Piece& piece) {
  const auto entry = plan.cache->pieces()->entry_of(file, piece.number);
  return entry && *entry < store.entries() ? entry : std::nullopt;
}

/// Neighbouring pieces of an extent whose entries have neighbouring numbers. They are copied from and to the store
/// together, which takes fewer system calls. Bytes that are written together are also read back faster, because the
/// page cache holds them in larger folios.
class PieceRun {
 public:
  bool empty() const noexcept { return count_ == 0; }
  std::span<const Piece> pieces() const noexcept { return std::span(pieces_).first(count_); }
  /// Returns the number of the entry of pieces()[i].
  uint64_t entry(size_t i) const noexcept { return first_ + i; }
  std::span<const uint64_t> sizes() const noexcept { return std::span(sizes_).first(count_); }

  /// Returns whether a piece continues the run, or begins it.
  bool fits(uint64_t entry, const Piece& piece) const noexcept {
    if (empty()) return true;
    const Piece& last = pieces_[count_ - 1];
    return count_ < most && entry == first_ + count_ && piece.offset == last.offset + last.bytes;
  }
  void add(uint64_t entry, const Piece& piece) noexcept {
    if (empty()) first_ = entry;
    pieces_[count_] = piece;
    sizes_[count_++] = piece.bytes;
  }
  void clear() noexcept { count_ = 0; }

 private:
  static constexpr size_t most = 64;
  uint64_t first_ = 0;  // the number of the first entry
  size_t count_ = 0;
  std::array<Piece, most> pieces_;
  std::array<uint64_t, most> sizes_;
};

// Calls `use(run)` for the pieces of an extent that have entries, and `none(piece)` for each other piece, in their
// order.
template <typename Use, typename None>
void for_each_run(const Plan& plan, const io::EntryStore& store, const Extent& extent, Use use, None none) {
  PieceRun run;
  const auto end_run = [&] {
    if (!run.empty()) use(run);
    run.clear();
  };
  for_each_piece(plan.data.files[extent.file].index, extent.offset, extent.offset + extent.length,
                 [&](const Piece& piece) {
                   const auto entry = entry_of(plan, store, extent.file, piece);
                   if (!entry || !run.fits(*entry, piece)) end_run();
                   entry ? run.add(*entry, piece) : none(piece);
                 });
  end_run();
}

// Returns how many rows of an extent lie in a piece.
uint64_t rows_in(const DataFile& file, const Extent& extent, const Piece& piece) {
  const uint64_t end = extent.record_of(extent.first_row + extent.rows - 1) + 1;
  const uint64_t first_record = std::max(piece.first_record, extent.first_record);
  const uint64_t end_record = std::max(first_record, std::min(piece.end_record, end));
  return file.samples.before(end_record) - file.samples.before(first_record);
}

// Returns whether the bytes are whole records whose checksums are right.
bool are_good(const DataFile& file, std::span<const std::byte> bytes) {
  io::RecordScanner scanner(bytes, file.index.largest_record);
  std::array<io::RecordView, 32> records;
  size_t count = 0;
  auto stop = io::RecordScanner::Stop::full;
  while (stop == io::RecordScanner::Stop::full) stop = scanner.next(records, count);
  return stop == io::RecordScanner::Stop::end;
}

}  // namespace

bool RecordCache::has(const Ticket& ticket) const noexcept {
  bool all = true;
  for (const Extent& extent : ticket.extents)
    for_each_piece(plan_.data.files[extent.file].index, extent.offset, extent.offset + extent.length,
                   [&](const Piece& piece) {
                     if (!all) return;
                     const auto entry = entry_of(plan_, store_, extent.file, piece);
                     all = entry && store_.has(*entry);
                   });
  return all;
}

std::vector<RecordCache::Missing> RecordCache::fetch(Chunk& chunk) {
  std::vector<Missing> missing;
  uint64_t missing_rows = 0;
  for (size_t e = 0; e < chunk.ticket.extents.size(); e++) {
    const Extent& extent = chunk.ticket.extents[e];
    const auto miss = [&](const Piece& piece) {
      missing_rows += rows_in(plan_.data.files[extent.file], extent, piece);
      Missing* const last = missing.empty() ? nullptr : &missing.back();
      if (last && last->extent == e && last->offset + last->length == piece.offset)
        last->length += piece.bytes;
      else
        missing.push_back({e, piece.offset, piece.bytes});
    };
    const auto find = [&](const PieceRun& run) {
      const std::span pieces = run.pieces();
      const uint64_t end = pieces.back().offset + pieces.back().bytes;
      for (size_t i = 0; i < pieces.size(); i++) {
        const std::span<std::byte> place = chunk.bytes_at(e, pieces[i].offset, end - pieces[i].offset);
        i += store_.find_run(run.entry(i), run.sizes().subspan(i), place);
        if (i < pieces.size()) miss(pieces[i]);
      }
    };
    for_each_run(plan_, store_, extent, find, miss);
  }
  // A chunk that is inflated is inflated as a whole if anything is missing.
  if (!missing.empty() && chunk.ticket.inflates) missing_rows = chunk.ticket.rows;
  not_found_.fetch_add(missing_rows, std::memory_order_relaxed);
  found_.fetch_add(chunk.ticket.rows - missing_rows, std::memory_order_relaxed);
  return missing;
}

void RecordCache::keep(Chunk& chunk) {
  for (size_t e = 0; e < chunk.ticket.extents.size(); e++) {
    const Extent& extent = chunk.ticket.extents[e];
    const DataFile& file = plan_.data.files[extent.file];
    const auto keep = [&](const PieceRun& run) {
      const std::span pieces = run.pieces();
      for (size_t i = 0; i < pieces.size(); i++) {
        const size_t first = i;
        const uint64_t offset = pieces[first].offset;
        while (i < pieces.size() && are_good(file, chunk.bytes_at(e, pieces[i].offset, pieces[i].bytes))) i++;
        if (i > first)
          store_.keep_run(run.entry(first), run.sizes().subspan(first, i - first),
                          chunk.bytes_at(e, offset, pieces[i - 1].offset + pieces[i - 1].bytes - offset));
      }
    };
    for_each_run(plan_, store_, extent, keep, [](const Piece&) {});
  }
}

}  // namespace feedline::flow
