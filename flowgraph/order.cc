#include "flowgraph/order.h"

#include <algorithm>

namespace feedline::flow {

uint64_t Ticket::bytes() const noexcept {
  uint64_t sum = 0;
  for (const Extent& extent : extents) sum += extent.length;
  return sum;
}

FileOrder::FileOrder(const DataSet& data, const TicketLimits& limits) : data_(&data) {
  uint64_t sample = 0;
  for (uint32_t f = 0; f < data.files.size(); f++) {
    const auto& entries = data.files[f].index.entries;
    uint32_t begin = 0;
    for (uint32_t end = 1; end < entries.size(); end++) {
      const bool last = end + 1 == entries.size();
      const io::IndexEntry& next = entries[last ? end : end + 1];
      const bool would_exceed =
          next.offset - entries[begin].offset > limits.bytes || next.record - entries[begin].record > limits.rows;
      if ((last || would_exceed) && entries[end].record > entries[begin].record) {
        cuts_.push_back({f, begin, end, sample});
        sample += entries[end].record - entries[begin].record;
        begin = end;
      }
    }
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
  auto bad = std::lower_bound(index.bad.begin(), index.bad.end(), begin.offset,
                              [](const io::BadRegion& region, uint64_t offset) { return region.offset < offset; });
  for (; bad != index.bad.end() && bad->offset < end.offset; ++bad) {
    if (bad->record > at.record)
      ticket.extents.push_back({at.offset, bad->offset - at.offset, static_cast<uint32_t>(bad->record - at.record)});
    at = {bad->offset + bad->length, bad->record};
  }
  if (end.record > at.record)
    ticket.extents.push_back({at.offset, end.offset - at.offset, static_cast<uint32_t>(end.record - at.record)});
}

uint64_t FileOrder::bytes(const Cut& cut) const {
  const auto& entries = data_->files[cut.file].index.entries;
  return entries[cut.end].offset - entries[cut.begin].offset;
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
      in_window += bytes(cuts_[end % tickets]);
    largest.tickets = std::max(largest.tickets, end - begin);
    largest.bytes = std::max(largest.bytes, in_window);
    in_window -= bytes(cuts_[begin]);
  }
  return largest;
}

}  // namespace feedline::flow
