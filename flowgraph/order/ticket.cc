#include "flowgraph/order/ticket.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "feedline/error.h"
#include "flowgraph/data/bad_bytes.h"
#include "io/read/read_backend.h"
#include "io/records/record_scanner.h"

namespace feedline::flow {
namespace {

constexpr uint64_t most_block_rows = std::numeric_limits<uint32_t>::max();

[[noreturn]] void refuse_block(const DataFile& file, uint64_t rows) {
  throw Error(
      Category::bad_pipeline,
      fmt::format(
          "shuffle.mode: BLOCK would shuffle {} samples of this file as one block, but a block has at most {}; {}",
          rows, most_block_rows,
          file.compressed() ? "inflating cannot begin anywhere among these samples: write the file anew with "
                              "`feedline split`"
                            : "write a smaller shuffle.block_size"),
      Place::of_file(file.id.uri));
}

}  // namespace

uint64_t Ticket::bytes() const noexcept {
  uint64_t sum = 0;
  for (const Extent& extent : extents) sum += extent.length;
  return sum;
}

uint64_t Ticket::payload_bytes() const noexcept {
  const uint64_t all = bytes();
  return all - std::min(all, uint64_t{rows} * io::frame_bytes);
}

uint64_t slot_bytes(const Ticket& ticket) noexcept {
  if (ticket.inflates) return ticket.bytes();
  uint64_t sum = 0;
  for (const Extent& extent : ticket.extents) sum += io::Read::capacity_for(extent.offset, extent.length);
  return sum;
}

void Ticket::add(const DataSet& data, uint32_t file, uint64_t first_sample, uint64_t sample_count) {
  const io::FileIndex& index = data.files[file].index;
  const Selection& samples = data.files[file].samples;
  inflates |= data.files[file].compressed();
  const uint64_t first = samples.record(first_sample), last = samples.record(first_sample + sample_count - 1) + 1;
  const auto by_record = [](const io::IndexEntry& entry, uint64_t record) { return entry.record < record; };
  const auto end = std::lower_bound(index.entries.begin(), index.entries.end(), last, by_record);
  auto begin = std::lower_bound(index.entries.begin(), end, first + 1, by_record);
  --begin;  // the last entry at or before the first record that is wanted

  io::IndexEntry at = *begin;
  const auto take = [&](uint64_t until, uint64_t until_record) {
    uint64_t from = std::max(first, at.record);
    const uint64_t to = std::min(last, until_record);
    const uint64_t count = samples.before(to) - samples.before(std::min(from, to));
    if (count == 0) return;
    from = samples.record(samples.before(from));
    extents.push_back({.file = file,
                       .offset = at.offset,
                       .length = until - at.offset,
                       .skip = static_cast<uint32_t>(from - at.record),
                       .rows = static_cast<uint32_t>(count),
                       .first_row = rows,
                       .first_record = from,
                       .kept = samples.kept()});
    rows += static_cast<uint32_t>(count);
  };
  for (auto bad = first_bad_from(index, at.offset); bad != index.bad.end() && bad->offset < end->offset; ++bad) {
    take(bad->offset, bad->record);
    at = {bad->offset + bad->length, bad->record};
  }
  take(end->offset, end->record);
}

uint64_t longest_section(const io::FileIndex& index) noexcept {
  if (index.compression == Compression::none) return 0;
  uint64_t longest = 0, from = 0;
  for (const io::SeekEntry& entry : index.seek_points) {
    longest = std::max(longest, entry.point.offset - from);
    from = entry.point.offset;
  }
  return std::max(longest, index.stream_size - from);
}

Blocks cut_by_size(const DataSet& data, FileRange files, const BlockLimits& limits) {
  Blocks blocks;
  for (uint32_t f = files.first; f < files.last; f++) {
    const io::FileIndex& index = data.files[f].index;
    if (index.entries.empty()) continue;
    BadBytes bad(index);
    const auto samples_before = [&](uint32_t entry) {
      return data.files[f].samples.before(index.entries[entry].record);
    };
    Block block{.file = f, .first = samples_before(0)};
    uint64_t gaps = 0;
    auto seek_point = index.seek_points.begin();
    const auto close = [&](uint32_t end) {
      const uint64_t next_first = samples_before(end);
      block.end = end;
      block.rows = static_cast<uint32_t>(next_first - block.first);
      if (block.rows > 0) blocks.push_back(block);
      block = {.file = f, .begin = end, .first = next_first};
      gaps = 0;
    };
    for (uint32_t end = 1; end < index.entries.size(); end++) {
      const uint64_t begin = index.entries[end - 1].offset;
      if (seek_point != index.seek_points.end() && seek_point->point.offset <= begin) {
        if (end - 1 > block.begin) close(end - 1);
        while (seek_point != index.seek_points.end() && seek_point->point.offset <= begin) ++seek_point;
      }
      const auto [bad_bytes, bad_regions] = bad.until(index.entries[end].offset);
      const uint64_t good_bytes = index.entries[end].offset - begin - bad_bytes;
      if (end - 1 > block.begin &&
          (block.bytes + good_bytes + (gaps + bad_regions) * bytes_around_extent > limits.bytes ||
           samples_before(end) - block.first > limits.rows))
        close(end - 1);
      block.bytes += good_bytes;
      gaps += bad_regions;
    }
    close(static_cast<uint32_t>(index.entries.size()) - 1);
  }
  return blocks;
}

Blocks cut_by_place(const DataSet& data, FileRange files, uint64_t block_bytes) {
  Blocks blocks;
  for (uint32_t f = files.first; f < files.last; f++) {
    const io::FileIndex& index = data.files[f].index;
    if (index.entries.empty()) continue;
    BadBytes bad(index);
    const auto last = static_cast<uint32_t>(index.entries.size()) - 1;
    const auto strides = static_cast<uint32_t>(std::min<uint64_t>(block_bytes / index.stride, last));
    // Returns the border after `begin`. In a compressed file a block is inflated from a seek point on.
    const auto border_after = [&](uint32_t begin) {
      const uint32_t border = begin + std::min(strides, last - begin);
      if (!data.files[f].compressed()) return border;
      const uint64_t from = index.entries[border].offset;
      const auto point =
          std::ranges::lower_bound(index.seek_points, from, {}, [](const auto& e) { return e.point.offset; });
      if (point == index.seek_points.end()) return last;
      // Seek points may also lie after the last good record.
      const auto entry = std::ranges::lower_bound(index.entries.begin() + border, index.entries.begin() + last,
                                                  point->point.offset, {}, &io::IndexEntry::offset);
      return static_cast<uint32_t>(entry - index.entries.begin());
    };
    for (uint32_t begin = 0, end = 0; begin < last; begin = end) {
      end = border_after(begin);
      const io::IndexEntry &from = index.entries[begin], &to = index.entries[end];
      const uint64_t first = data.files[f].samples.before(from.record);
      const uint64_t bytes = to.offset - from.offset - bad.until(to.offset).bytes;
      const uint64_t rows = data.files[f].samples.before(to.record) - first;
      if (rows > most_block_rows) refuse_block(data.files[f], rows);
      if (rows > 0) blocks.push_back({f, begin, end, first, static_cast<uint32_t>(rows), bytes});
    }
  }
  return blocks;
}

}  // namespace feedline::flow
