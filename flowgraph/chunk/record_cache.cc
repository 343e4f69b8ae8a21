#include "flowgraph/chunk/record_cache.h"

#include <algorithm>
#include <array>
#include <cstring>
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
    const DataFile& file = plan_.data.files[extent.file];
    for_each_piece(file.index, extent.offset, extent.offset + extent.length, [&](const Piece& piece) {
      const std::span<std::byte> bytes = chunk.bytes_at(e, piece.offset, piece.bytes);
      if (const auto entry = entry_of(plan_, store_, extent.file, piece)) {
        const std::span<const std::byte> found = store_.find(*entry, bytes);
        if (found.size() == bytes.size()) {
          if (found.data() != bytes.data()) std::memcpy(bytes.data(), found.data(), bytes.size());
          return;
        }
      }
      missing_rows += rows_in(file, extent, piece);
      Missing* const last = missing.empty() ? nullptr : &missing.back();
      if (last && last->extent == e && last->offset + last->length == piece.offset)
        last->length += piece.bytes;
      else
        missing.push_back({e, piece.offset, piece.bytes});
    });
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
    for_each_piece(file.index, extent.offset, extent.offset + extent.length, [&](const Piece& piece) {
      const auto entry = entry_of(plan_, store_, extent.file, piece);
      if (!entry) return;
      const std::span<std::byte> bytes = chunk.bytes_at(e, piece.offset, piece.bytes);
      const std::span<std::byte> place = store_.claim(*entry, bytes.size(), bytes);
      if (place.empty()) return;
      if (!are_good(file, bytes)) return store_.give_up(*entry);
      if (place.data() != bytes.data()) std::memcpy(place.data(), bytes.data(), bytes.size());
      store_.keep(*entry, place);
    });
  }
}

}  // namespace feedline::flow
