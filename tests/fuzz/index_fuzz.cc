// A forged index file must be refused, or keep everything that reading and the plan of memory rely on. It is read from
// memory and from a file, with the same answer, and one that is accepted is written and read again.
//
// An input that begins as an index does is used as an index. Any other input is a list of changes to the words of a
// valid index, so that the engine need not discover how the tables depend on each other; behind the word "gzip", to
// those of the index of a compressed file. One or two bytes after the last change say what is wanted otherwise than the
// index was made, and where it is cut.
// covers: io/index/index_file.cc io/index/index_check.cc io/index/seek_points.cc
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/index/index_builder.h"
#include "io/index/index_check.h"
#include "io/index/index_file.h"
#include "io/records/crc32c.h"
#include "io/records/record_scanner.h"
#include "tests/fuzz/draw.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace feedline;

__extension__ using Wide = unsigned __int128;

constexpr size_t header_bytes = 168;

void require(bool holds) {
  if (!holds) std::abort();
}

// Checks a stretch of good records between two known places: its bytes must fit the number of its records.
void check_stretch(const io::FileIndex& index, const io::IndexEntry& begin, const io::IndexEntry& end) {
  require(end.offset >= begin.offset && end.record >= begin.record);
  const Wide bytes = end.offset - begin.offset, records = end.record - begin.record;
  require(records * (io::frame_bytes + index.smallest_record) <= bytes);
  require(bytes <= records * (io::frame_bytes + index.largest_record));
}

// Checks what a feeder reads between two places at which records begin: good records between bad regions, without gaps.
// Returns the number of bytes of the good records.
uint64_t check_between(const io::FileIndex& index, io::IndexEntry at, const io::IndexEntry& end) {
  uint64_t bytes = 0;
  const auto go_to = [&](const io::IndexEntry& place) {
    check_stretch(index, at, place);
    bytes += place.offset - at.offset;
  };
  for (const io::BadRegion& region : index.bad) {
    if (region.offset < at.offset || region.offset >= end.offset) continue;
    go_to({region.offset, region.record});
    require(region.length > 0 && region.length <= end.offset - region.offset);
    at = {region.offset + region.length, region.record};
  }
  go_to(end);
  return bytes;
}

void check_entries(const io::FileIndex& index, const io::CountOptions& options) {
  const io::IndexEntry end{index.end, index.records};
  require(index.entries.size() == index.stream_size / index.stride + (index.stream_size % index.stride != 0) + 1);
  require(index.entries.back() == end && index.end <= index.stream_size);
  require(index.largest_record <= options.record_limit && index.smallest_record <= index.largest_record);
  const uint64_t longest = io::frame_bytes + index.largest_record;
  require(check_between(index, {}, index.entries.front()) == 0);  // no good bytes lie before the first entry
  for (size_t k = 0; k < index.entries.size(); k++) {
    const io::IndexEntry& entry = index.entries[k];
    if (entry == end) continue;
    require(entry.offset >= k * index.stride);
    for (const io::BadRegion& region : index.bad)
      require(region.offset + region.length <= entry.offset || region.offset > entry.offset);
    const io::IndexEntry& next = index.entries[k + 1];
    const uint64_t bytes = check_between(index, entry, next);
    require((next.offset == entry.offset) == (next.record == entry.record));
    require(bytes < index.stride + longest);
    // The next entry must begin within the bytes of one record, and bad regions, after the first place at which it may.
    uint64_t bad_bytes = 0;
    for (const io::BadRegion& region : index.bad)
      if (region.offset < next.offset && region.offset >= entry.offset) bad_bytes += region.length;
    require(next.offset <= std::max((k + 1) * index.stride, entry.offset) + longest + bad_bytes);
  }
  const uint64_t good_bytes = check_between(index, index.entries.front(), end);
  require(good_bytes == index.payload_bytes + index.records * io::frame_bytes);
}

// Checks what an inflater relies on that begins at a seek point.
void check_seek_points(const io::FileIndex& index, const io::FileId& file, const io::CountOptions& options) {
  require(index.seek_points.size() <= index.stream_size >> 20);
  require(index.seek_points.empty() || index.compression != Compression::none);
  std::vector<std::byte> window(io::deflate_window);
  uint64_t bytes = 0;
  io::SeekPoint before;
  for (size_t number = 1; number <= index.seek_points.size(); number++) {
    const io::SeekPoint& point = index.seek_points[number - 1].point;
    require(point.offset >= before.offset && point.bit > before.bit);
    require(point.offset <= index.stream_size && point.bit / 8 < file.size && point.member_size <= point.offset);
    const size_t found = index.seek_point_before(point.offset);
    require(found >= number && index.seek_points[found - 1].point.offset == point.offset);
    bytes += index.window_of(number).size();
    io::inflate_window(index.window_of(number), io::window_size(point),
                       std::span<std::byte, io::deflate_window>(window));
    before = point;
  }
  require(bytes == index.windows.size());
  if (index.seek_points.empty() || index.stream_size > 1 << 30) return;
  io::FileIndex more = index;
  more.seek_points = std::vector<io::SeekEntry>((index.stream_size >> 20) + 1, index.seek_points.back());
  require(!io::contradiction(more, file.size, options.record_limit).empty());
}

// Returns the index of a compressed file of several MiB, with seek points, and a stream that breaks off.
std::string sound_index_of_gzip(const io::FileId& file, const io::CountOptions& options) {
  io::IndexBuilder builder(options.stride);
  io::SeekPointList points;
  const std::vector<std::byte> window(io::deflate_window);
  for (uint32_t i = 0; i < 50; i++) {
    const io::RecordView record{nullptr, 60'000 + i * 1709 % 40'000, i};
    builder.add(builder.end(), {&record, 1});
  }
  const uint64_t end = builder.end();
  for (uint64_t point = io::fewest_seek_bytes; point < end; point += io::fewest_seek_bytes + 1000)
    points.add({.offset = point, .bit = 3 * point + 5, .member_size = point - 1000, .check = 7}, window);
  io::FileIndex index = builder.finish(end + 1000);
  index.compression = Compression::gzip;
  index.seek_points = points.take_entries();
  index.windows = points.take_windows();
  index.bad.push_back({end, 1000, 50, Category::bad_compression, "cut"});
  return io::index_bytes(index, file, options);
}

// Returns the index of records of many sizes, with damaged regions of many lengths between them.
std::string sound_index(const io::FileId& file, const io::CountOptions& options) {
  io::IndexBuilder builder(options.stride);
  std::vector<io::BadRegion> bad;
  uint64_t offset = 0;
  for (uint32_t i = 0; i < 90; i++) {
    const io::RecordView record{nullptr, i * i * 7919 % (i % 10 == 9 ? 3001 : 120), i};
    builder.add(offset, {&record, 1});
    offset = builder.end();
    for (uint32_t region = 0; i % 13 == 12 && region < 1 + i % 2; region++) {
      bad.push_back({offset, 30 + i * 11, builder.records(), Category::bad_data_crc, region == 0 ? "why" : ""});
      offset += bad.back().length;
    }
  }
  require(offset < file.size);
  bad.push_back({offset, file.size - offset, builder.records(), Category::truncated_data, "cut"});
  io::FileIndex index = builder.finish(file.size);
  index.bad = std::move(bad);
  return io::index_bytes(index, file, options);
}

const test::TempDir& folder() {
  static const test::TempDir dir;
  return dir;
}

uint64_t word(const std::string& bytes, size_t at) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, 8);
  return value;
}
void set_word(std::string& bytes, size_t at, uint64_t value) { std::memcpy(bytes.data() + at, &value, 8); }

// Changes an index. Each change is three bytes of `script`: which word, how, and by what value. Then corrects the sums.
void change(std::string& index, std::span<const uint8_t> script, uint64_t stride) {
  const uint64_t entries = word(index, 120), sums = word(index, 128);
  const size_t words = index.size() / 8;
  for (; script.size() >= 3; script = script.subspan(3)) {
    const size_t at = (script[0] + size_t{256} * (script[1] & 7)) % words * 8;
    const uint64_t by = script[2], old = word(index, at);
    switch (script[1] >> 3 & 7) {
      case 0:
        set_word(index, at, old + by);
        break;
      case 1:
        set_word(index, at, old - by);
        break;
      case 2:
        set_word(index, at, old + by * stride);
        break;
      case 3:
        set_word(index, at, old - by * stride);
        break;
      case 4:
        set_word(index, at, by);
        break;
      case 5:
        set_word(index, at, ~by);
        break;
      case 6:  // a word shortly before it
        set_word(index, at, word(index, (at + 8 * words - 8 * (by % 16)) % (8 * words)));
        break;
      default:  // any word
        set_word(index, at, word(index, by % words * 8));
    }
  }
  if (entries != word(index, 120) || sums != word(index, 128)) return;
  uint64_t audit = 0;
  for (size_t g = 0; g < sums; g++) audit += word(index, header_bytes + 16 * entries + 8 * g);
  set_word(index, 112, audit);
}

// Returns whether the header of an index says that it is one of this file and was made with these options.
bool belongs(const std::string& bytes, const io::FileId& file, const io::CountOptions& options) {
  const uint64_t asked = word(bytes, 32) & UINT32_MAX, found = word(bytes, 32) >> 32;
  const auto wanted = static_cast<uint64_t>(options.compression);
  return bytes.starts_with(std::string_view("feedlidx\2\0\0\0", 12)) && word(bytes, 16) == file.size &&
         word(bytes, 24) == file.version && (asked == wanted || found == wanted) &&
         word(bytes, 40) == options.record_limit && word(bytes, 48) == options.stride && found > 0;
}

void check_same(const io::IndexFile& read, const io::IndexFile& other, const io::FileId& file,
                const io::CountOptions& options) {
  require(read.refused == other.refused && read.index.has_value() == other.index.has_value());
  if (read.index) require(io::index_bytes(*read.index, file, options) == io::index_bytes(*other.index, file, options));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1 << 16) return 0;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  io::FileId file{"file", 60'000, 7};
  io::CountOptions options{.record_limit = 4000, .stride = 1000};
  bool is_summed = true;
  if (bytes.starts_with("feedlidx") && size >= header_bytes) {
    // The engine cannot know which file and options are expected, so they are taken from the index.
    file.size = word(bytes, 16);
    file.version = word(bytes, 24);
    options.record_limit = word(bytes, 40);
    if (const uint64_t stride = word(bytes, 48); stride > 0 && stride <= io::largest_stride) options.stride = stride;
    options.compression = static_cast<Compression>(data[32] % 4);
  } else {
    if (bytes.starts_with("gzip")) {
      data += 4;
      size -= 4;
      file.size = 1'500'000;
      options = {.record_limit = 150'000, .stride = 1 << 18};
      bytes = sound_index_of_gzip(file, options);
    } else {
      bytes = sound_index(file, options);
    }
    require(io::parse_index(std::as_bytes(std::span(bytes)), file, options).index.has_value());
    change(bytes, {data, size}, options.stride);
    file.size = word(bytes, 16);  // the file of which the index is
    file.version = word(bytes, 24);
    const size_t tail = size % 3;
    const uint8_t otherwise = tail ? data[size - tail] : 0;
    file.size += otherwise & 1;
    file.version += otherwise >> 1 & 1;
    options.stride += otherwise >> 2 & 1;
    options.record_limit -= otherwise >> 3 & 1;
    options.compression = static_cast<Compression>(otherwise >> 4 & 3);
    is_summed = !(otherwise & 64);
    bytes.resize(bytes.size() -
                 std::min<size_t>(bytes.size(), tail == 2 ? size_t{data[size - 1]} * data[size - 1] : 0));
    if (otherwise & 128) bytes += '?';
  }
  bool is_right = false;
  if (bytes.size() >= header_bytes) {
    const uint32_t crc = io::crc32c(std::as_bytes(std::span(bytes)).subspan(16));
    if (is_summed) std::memcpy(bytes.data() + 12, &crc, 4);
    is_right = std::memcmp(bytes.data() + 12, &crc, 4) == 0 && belongs(bytes, file, options);
  }
  const test::ExactBlock block(bytes);
  const io::IndexFile read = io::parse_index(block.span(), file, options);
  require(read.index.has_value() == read.refused.empty());
  require(is_right || !read.index);
  check_same(read, io::read_index(folder().write("index", bytes), file, options), file, options);
  if (!read.index) return 0;
  check_entries(*read.index, options);
  check_seek_points(*read.index, file, options);
  for (const io::BadRegion& region : read.index->bad) require(region.length <= read.index->stream_size - region.offset);
  const std::string path = folder().file("written");
  io::write_index(path, *read.index, file, options);
  check_same(read, io::read_index(path, file, options), file, options);
  return 0;
}
