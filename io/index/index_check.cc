#include "io/index/index_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/mul_div.h"
#include "io/records/record_scanner.h"

namespace feedline::io {
namespace {

struct Contradiction {
  std::string what;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Contradiction{"contradicts itself or the file: " + fmt::format(format, std::forward<Args>(args)...)};
}

/// Visits the entries and bad regions of an index in the order of their offsets. Checks, from the numbers in the index
/// alone, that good records can exactly fill the bytes between two neighbours.
class Walk {
 public:
  explicit Walk(const FileIndex& index) : index_(index) {}

  /// Goes to the place at `offset`, before which there are `record` good records. Fails unless good records can fill
  /// the bytes from the place that was reached last to this one without a gap, and can all begin before `until`.
  void good(uint64_t offset, uint64_t record, uint64_t until, const char* what) {
    const bool ascends = offset >= at_.offset && record >= at_.record && offset <= index_.stream_size;
    const uint64_t bytes = offset - at_.offset, records = record - at_.record;
    const uint64_t shortest = frame_bytes + index_.smallest_record, longest = frame_bytes + index_.largest_record;
    if (!ascends || Wide{records} * shortest > bytes || Wide{records} * longest < bytes)
      fail(
          "{} at offset {}, record {}, cannot follow offset {}, record {}, because the index says that records have {} "
          "to {} bytes",
          what, offset, record, at_.offset, at_.record, index_.smallest_record, index_.largest_record);
    // The left side is the smallest offset at which the last of these records can begin.
    if (records > 0 && std::max(at_.offset + (records - 1) * shortest, offset - std::min(offset, longest)) >= until)
      fail("{} at offset {}, where record {} or a record before it begins at or after offset {}", what, offset,
           record - 1, until);
    at_ = {offset, record};
  }
  /// Goes to the end of `region`. Fails unless good records can fill the bytes from the place that was reached last to
  /// the beginning of the region, and can all begin before `until`.
  void bad(const BadRegion& region, uint64_t until) {
    good(region.offset, region.record, until, "a bad region");
    if ((region.offset < index_.end) != (region.record < index_.records))
      fail("a bad region at offset {} after {} of {} records, but the last record ends at offset {}", region.offset,
           region.record, index_.records, index_.end);
    // An empty region says that a compressed stream breaks off. So it lies at the end of what could be inflated.
    if (region.length > index_.stream_size - at_.offset || (region.length == 0 && at_.offset != index_.stream_size))
      fail("a bad region of {} bytes at offset {}, which cannot lie there", region.length, region.offset);
    at_.offset += region.length;
    bad_bytes_ += region.length;
  }
  uint64_t offset() const noexcept { return at_.offset; }
  uint64_t bad_bytes() const noexcept { return bad_bytes_; }

 private:
  const FileIndex& index_;
  IndexEntry at_;
  uint64_t bad_bytes_ = 0;
};

void check_sizes(const FileIndex& index, uint64_t file_size, uint64_t record_limit) {
  if (!can_be_stream(index.compression, index.stream_size, file_size))
    fail("it says that there are {} bytes of records in a file of {} bytes", index.stream_size, file_size);
  if (const uint64_t wanted = entries_of(index.stream_size, index.stride); index.entries.size() != wanted)
    fail("it has {} entries instead of {}", index.entries.size(), wanted);
  if (const uint64_t wanted = sums_of(index.stream_size, index.stride); index.sums.size() != wanted)
    fail("it has {} sums instead of {}", index.sums.size(), wanted);
  if (index.smallest_record > index.largest_record)
    fail("it says that its smallest record has {} bytes, and its largest record only {}", index.smallest_record,
         index.largest_record);
  if (const uint64_t most = std::min<uint64_t>(record_limit, UINT32_MAX); index.largest_record > most)
    fail("it says that its largest record has {} bytes, but a record has at most {}", index.largest_record, most);
}

// Returns the number of bytes in bad regions.
uint64_t check_places(const FileIndex& index) {
  const IndexEntry end{index.end, index.records};
  Walk walk(index);
  auto bad = index.bad.begin();
  for (size_t k = 0; k < index.entries.size(); k++) {
    const IndexEntry& entry = index.entries[k];
    const uint64_t wanted = k * index.stride;
    for (; bad != index.bad.end() && bad->offset < entry.offset; ++bad) walk.bad(*bad, wanted);
    walk.good(entry.offset, entry.record, wanted, "an entry");
    if (entry == end) continue;
    if (entry.record >= end.record || entry.offset < wanted || (bad != index.bad.end() && bad->offset == entry.offset))
      fail("entry {} cannot be at offset {}, record {}", k, entry.offset, entry.record);
  }
  if (index.entries.back() != end) fail("its last entry is not the end of the file");
  for (; bad != index.bad.end(); ++bad) walk.bad(*bad, index.stream_size);
  if (walk.offset() != index.stream_size)
    fail("its records and bad regions end at offset {} of {}", walk.offset(), index.stream_size);
  return walk.bad_bytes();
}

void check_seek_points(const FileIndex& index, uint64_t file_size) {
  if (index.seek_points.size() > most_seek_points(index.compression, index.stream_size))
    fail("it has {} seek points in a stream of {} bytes", index.seek_points.size(), index.stream_size);
  SeekEntry before;
  for (const SeekEntry& entry : index.seek_points) {
    const SeekPoint& point = entry.point;
    const bool ascends =
        point.offset >= before.point.offset && point.bit > before.point.bit && entry.window_end >= before.window_end;
    const bool inside = point.offset <= index.stream_size && point.bit / 8 < file_size &&
                        point.member_size <= point.offset && point.check <= UINT32_MAX &&
                        entry.window_end <= index.windows.size();
    if (!ascends || !inside || entry.window_end - before.window_end > most_window_bytes)
      fail(
          "a seek point at offset {}, bit {} of the file, with a window that ends at byte {} of {}, cannot follow one "
          "at offset {}, bit {}",
          point.offset, point.bit, entry.window_end, index.windows.size(), before.point.offset, before.point.bit);
    before = entry;
  }
  if (before.window_end != index.windows.size())
    fail("its windows have {} bytes instead of {}", index.windows.size(), before.window_end);
}

void check_totals(const FileIndex& index, uint64_t bad_bytes) {
  uint64_t audit = 0;
  for (const uint64_t sum : index.sums) audit += sum;
  if (audit != index.audit) fail("its sums add up to {:016x}, but it states the total {:016x}", audit, index.audit);
  const uint64_t smallest = index.smallest_record, largest = index.largest_record, payload = index.payload_bytes;
  const auto agree = [&] {
    if (payload != index.stream_size - bad_bytes - index.records * frame_bytes) return false;
    if (index.records == 0) return largest == 0 && index.end == 0;
    // Some record has the smallest size, and some record, perhaps the same one, has the largest. So there are bounds
    // for the sum of the sizes.
    const uint64_t others = index.records - 1;
    return largest <= payload - others * smallest && payload - smallest <= Wide{others} * largest;
  };
  if (!agree())
    fail("{} records of {} to {} bytes cannot have {} bytes together", index.records, smallest, largest, payload);
}

}  // namespace

std::string contradiction(const FileIndex& index, uint64_t file_size, uint64_t record_limit) {
  try {
    check_sizes(index, file_size, record_limit);
    check_totals(index, check_places(index));
    check_seek_points(index, file_size);
    return "";
  } catch (const Contradiction& found) {
    return found.what;
  }
}

}  // namespace feedline::io
