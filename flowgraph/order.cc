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

const FileOrder::Cut& FileOrder::cut_of_sample(uint64_t sample) const {
  return *std::prev(std::upper_bound(cuts_.begin(), cuts_.end(), sample,
                                     [](uint64_t wanted, const Cut& cut) { return wanted < cut.sample; }));
}

uint64_t FileOrder::tickets_of_samples(uint64_t first, uint64_t count) const {
  if (count == 0) return 0;
  return static_cast<uint64_t>(&cut_of_sample(first + count - 1) - &cut_of_sample(first)) + 1;
}

uint64_t FileOrder::bytes_of_samples(uint64_t first, uint64_t count) const {
  if (count == 0) return 0;
  const auto offset = [&](const Cut& cut, uint64_t record, bool behind) {
    const auto& entries = data_->files[cut.file].index.entries;
    const auto by_record = [](uint64_t wanted, const io::IndexEntry& entry) { return wanted < entry.record; };
    const auto above = std::upper_bound(entries.begin() + cut.begin, entries.begin() + cut.end + 1, record, by_record);
    return behind ? above->offset : std::prev(above)->offset;
  };
  const uint64_t last = first + count - 1;
  const Cut* cut = &cut_of_sample(first);
  const Cut* last_cut = &cut_of_sample(last);
  const auto record = [&](const Cut& of, uint64_t sample) {
    return data_->files[of.file].index.entries[of.begin].record + (sample - of.sample);
  };
  uint64_t bytes = 0;
  for (; cut <= last_cut; cut++) {
    const auto& entries = data_->files[cut->file].index.entries;
    const uint64_t from = cut->sample <= first ? offset(*cut, record(*cut, first), false) : entries[cut->begin].offset;
    const uint64_t to = cut == last_cut ? offset(*cut, record(*cut, last), true) : entries[cut->end].offset;
    bytes += to - from;
  }
  return bytes;
}

}  // namespace feedline::flow
