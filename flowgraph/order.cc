#include "flowgraph/order.h"

#include <algorithm>

#include "io/read_backend.h"

namespace feedline::flow {
namespace {

// What an extent more takes in a slot: each is read in whole blocks.
constexpr uint64_t bytes_of_gap = 2 * io::block_bytes;

auto first_bad_behind(const io::FileIndex& index, uint64_t offset) {
  return std::lower_bound(index.bad.begin(), index.bad.end(), offset,
                          [](const io::BadRegion& region, uint64_t at) { return region.offset < at; });
}

}  // namespace

uint64_t Ticket::bytes() const noexcept {
  uint64_t sum = 0;
  for (const Extent& extent : extents) sum += extent.length;
  return sum;
}

FileOrder::FileOrder(const DataSet& data, const TicketLimits& limits) : data_(&data) {
  uint64_t sample = 0;
  for (uint32_t f = 0; f < data.files.size(); f++) {
    const auto& entries = data.files[f].index.entries;
    if (entries.empty()) continue;
    auto bad = first_bad_behind(data.files[f].index, entries.front().offset);
    const auto last_bad = data.files[f].index.bad.end();
    Cut cut{f, 0, 0, sample, 0};
    uint64_t gaps = 0;
    for (uint32_t end = 1; end < entries.size(); end++) {
      uint64_t bad_bytes = 0, bad_regions = 0;  // of this stride
      for (; bad != last_bad && bad->offset < entries[end].offset; ++bad, bad_regions++) bad_bytes += bad->length;
      const uint64_t good_bytes = entries[end].offset - entries[end - 1].offset - bad_bytes;
      const bool would_exceed = cut.bytes + good_bytes + (gaps + bad_regions) * bytes_of_gap > limits.bytes ||
                                entries[end].record - entries[cut.begin].record > limits.rows;
      if (would_exceed && entries[end - 1].record > entries[cut.begin].record) {
        cut.end = end - 1;
        cuts_.push_back(cut);
        sample += entries[cut.end].record - entries[cut.begin].record;
        cut = {f, cut.end, 0, sample, 0};
        gaps = 0;
      }
      cut.bytes += good_bytes;
      gaps += bad_regions;
    }
    cut.end = static_cast<uint32_t>(entries.size()) - 1;
    if (entries[cut.end].record == entries[cut.begin].record) continue;
    cuts_.push_back(cut);
    sample += entries[cut.end].record - entries[cut.begin].record;
  }
}

void FileOrder::ticket(uint64_t number, Ticket& ticket) const {
  const Cut& cut = cuts_[number];
  const io::FileIndex& index = data_->files[cut.file].index;
  const io::IndexEntry& begin = index.entries[cut.begin];
  const io::IndexEntry& end = index.entries[cut.end];
  ticket.file = cut.file;
  ticket.first_record = begin.record;
  ticket.rows = static_cast<uint32_t>(end.record - begin.record);
  ticket.extents.clear();

  io::IndexEntry at = begin;
  auto bad = first_bad_behind(index, begin.offset);
  for (; bad != index.bad.end() && bad->offset < end.offset; ++bad) {
    if (bad->record > at.record)
      ticket.extents.push_back({at.offset, bad->offset - at.offset, static_cast<uint32_t>(bad->record - at.record)});
    at = {bad->offset + bad->length, bad->record};
  }
  if (end.record > at.record)
    ticket.extents.push_back({at.offset, end.offset - at.offset, static_cast<uint32_t>(end.record - at.record)});
}

FileOrder::Window FileOrder::largest_window(uint64_t count, bool within_one_pass) const {
  if (cuts_.empty()) return {};
  // Tickets are numbered on through the passes. A window that touches the most begins at the last sample of its first
  // ticket; `end` is the first ticket behind it.
  const uint64_t tickets = cuts_.size(), samples = data_->records;
  const auto first_sample = [&](uint64_t t) { return cuts_[t % tickets].sample + t / tickets * samples; };
  Window largest;
  uint64_t end = 0, in_window = 0;
  for (uint64_t begin = 0; begin < tickets; begin++) {
    const uint64_t behind = first_sample(begin + 1) - 1 + count;
    for (; first_sample(end) < behind && (end < tickets || !within_one_pass); end++)
      in_window += cuts_[end % tickets].bytes;
    largest.tickets = std::max(largest.tickets, end - begin);
    largest.bytes = std::max(largest.bytes, in_window);
    in_window -= cuts_[begin].bytes;
  }
  return largest;
}

}  // namespace feedline::flow
