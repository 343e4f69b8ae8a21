// An index file that somebody made up: refused, or one from which nothing can be read that does not lie in the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "io/crc32c.h"
#include "io/index_file.h"
#include "io/record_scanner.h"

namespace {

using namespace feedline;

void require(bool holds) {
  if (!holds) std::abort();
}

// What a feeder reads between two entries: good records between bad regions, without a gap.
void check_between(const io::FileIndex& index, io::IndexEntry at, const io::IndexEntry& end) {
  for (const io::BadRegion& region : index.bad) {
    if (region.offset < at.offset || region.offset >= end.offset) continue;
    require(region.record >= at.record && region.record <= end.record);
    require((region.record - at.record) * io::frame_bytes <= region.offset - at.offset);
    require(region.length <= end.offset - region.offset);
    at = {region.offset + region.length, region.record};
  }
  require(end.offset >= at.offset && end.record >= at.record);
  require((end.offset == at.offset) == (end.record == at.record));
  require((end.record - at.record) * io::frame_bytes <= end.offset - at.offset);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1 << 16) return 0;
  // Aligned, as a mapped file is.
  const auto words = std::make_shared<std::vector<uint64_t>>(size / 8 + 1);
  auto* const bytes = reinterpret_cast<std::byte*>(words->data());
  std::memcpy(bytes, data, size);
  io::FileId file{"file", 0, 0};
  io::CountOptions options;
  if (size >= 152) {
    // The engine cannot find checksums, nor know what is asked for.
    const uint32_t crc = io::crc32c({bytes + 16, size - 16});
    std::memcpy(bytes + 12, &crc, 4);
    std::memcpy(&file.size, bytes + 16, 8);
    std::memcpy(&file.version, bytes + 24, 8);
    std::memcpy(&options.record_limit, bytes + 40, 8);
    uint64_t stride = 0;
    std::memcpy(&stride, bytes + 48, 8);
    if (stride > 0 && stride <= io::largest_stride) options.stride = stride;
    options.compression = static_cast<Compression>(std::to_integer<int>(bytes[32]) % 4);
  }
  const io::IndexFile read = io::parse_index({bytes, size}, words, false, file, options);
  require(read.index.has_value() == read.refused.empty());
  if (!read.index) return 0;
  const io::FileIndex& index = *read.index;
  require(!index.entries.empty() && index.entries.back() == io::IndexEntry{index.end, index.records});
  require(index.end <= index.stream_size);
  check_between(index, {}, index.entries.front());
  for (size_t k = 0; k + 1 < index.entries.size(); k++) check_between(index, index.entries[k], index.entries[k + 1]);
  check_between(index, index.entries.front(), index.entries.back());
  for (const io::BadRegion& region : index.bad) require(region.length <= index.stream_size - region.offset);
  return 0;
}
