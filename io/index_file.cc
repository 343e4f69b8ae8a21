#include "io/index_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "io/crc32c.h"
#include "io/output_file.h"
#include "io/record_scanner.h"
#include "io/whole_file.h"

namespace feedline::io {
namespace {

static_assert(std::endian::native == std::endian::little, "the tables are used as they lie");

constexpr std::array<char, 8> magic = {'f', 'e', 'e', 'd', 'l', 'i', 'd', 'x'};
constexpr uint32_t format_version = 1;

struct Header {
  std::array<char, 8> magic;
  uint32_t version, crc;
  uint64_t file_size, file_version;
  uint32_t asked, compression;
  uint64_t record_limit, stride, reserved;
  uint64_t records, payload_bytes, smallest_record, largest_record, end, stream_size, audit;
  uint64_t entries, sums, bad, message_bytes;
};
static_assert(sizeof(Header) == 152);
constexpr size_t crc_covers_from = 16;

struct BadRow {
  uint64_t offset, length, record;
  uint32_t category, message_bytes;
};
static_assert(sizeof(BadRow) == 32 && sizeof(IndexEntry) == 16);

// What a counting pass reports; no other category fits a bad region.
bool is_damage(uint32_t category) noexcept { return category <= static_cast<uint32_t>(Category::bad_compression); }

template <typename T>
std::span<const std::byte> bytes_of(const T& rows) {
  return std::as_bytes(std::span(rows.begin(), rows.end()));
}

struct Refused {
  std::string why;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Refused{fmt::format(format, std::forward<Args>(args)...)};
}

void check_key(const Header& h, const FileId& data, const CountOptions& options) {
  if (h.file_size != data.size) refuse("is of a file of {} bytes, this one has {}", h.file_size, data.size);
  if (h.file_version != data.version) refuse("is older or newer than the file, which was written to at another time");
  if (h.stride != options.stride) refuse("has a stride of {} bytes, asked for are {}", h.stride, options.stride);
  if (h.record_limit != options.record_limit)
    refuse("was made with a record_limit of {} bytes, now it is {}", h.record_limit, options.record_limit);
  const auto asked = static_cast<uint32_t>(options.compression);
  if (h.asked != asked && h.compression != asked) refuse("was made with another compression named");
}

// The walk from one known place of the stream to the next: whatever the index says, in the order of offsets.
class Walk {
 public:
  // From here to there lie good records, without a gap.
  void good(uint64_t offset, uint64_t record, const char* what) {
    const bool ascends = offset >= at_.offset && record >= at_.record;
    const uint64_t bytes = offset - at_.offset, records = record - at_.record;
    if (!ascends || (bytes == 0) != (records == 0) || records > bytes / frame_bytes)
      refuse("makes no sense: {} at offset {}, record {}, behind offset {}, record {}", what, offset, record,
             at_.offset, at_.record);
    at_ = {offset, record};
  }
  void bad(const BadRow& region) {
    good(region.offset, region.record, "a bad region");
    if (region.length > UINT64_MAX - at_.offset) refuse("makes no sense: a bad region of {} bytes", region.length);
    at_.offset += region.length;
    bad_bytes_ += region.length;
  }
  uint64_t offset() const noexcept { return at_.offset; }
  uint64_t bad_bytes() const noexcept { return bad_bytes_; }

 private:
  IndexEntry at_;
  uint64_t bad_bytes_ = 0;
};

void check_content(const Header& h, std::span<const IndexEntry> entries, std::span<const uint64_t> sums,
                   std::span<const BadRow> bad) {
  const auto compression = static_cast<Compression>(h.compression);
  if (compression == Compression::automatic || h.compression > static_cast<uint32_t>(Compression::zlib))
    refuse("makes no sense: compression {}", h.compression);
  if (compression == Compression::none && h.stream_size != h.file_size)
    refuse("makes no sense: {} bytes of records in a file of {}", h.stream_size, h.file_size);
  const auto parts = [&](uint64_t of) { return h.stream_size / of + (h.stream_size % of != 0); };
  if (h.entries != parts(h.stride) + 1) refuse("makes no sense: {} entries", h.entries);
  if (h.sums != parts(h.stride * strides_per_group)) refuse("makes no sense: {} sums", h.sums);

  Walk walk;
  size_t next = 0;  // bad region
  for (size_t k = 0; k < entries.size(); k++) {
    const IndexEntry& entry = entries[k];
    while (next < bad.size() && bad[next].offset < entry.offset) walk.bad(bad[next++]);
    walk.good(entry.offset, entry.record, "an entry");
    if (entry.offset < std::min(k * h.stride, h.end))
      refuse("makes no sense: entry {} is at offset {}", k, entry.offset);
  }
  if (entries.back() != IndexEntry{h.end, h.records}) refuse("makes no sense: its last entry is not its end");
  for (; next < bad.size(); next++) walk.bad(bad[next]);
  walk.good(walk.offset(), h.records, "the end");
  if (walk.offset() != h.stream_size)
    refuse("makes no sense: it ends at offset {} of {}", walk.offset(), h.stream_size);
  uint64_t audit = 0;
  for (const uint64_t sum : sums) audit += sum;
  if (audit != h.audit) refuse("makes no sense: its sums do not make its audit");
  if (h.payload_bytes != h.stream_size - walk.bad_bytes() - h.records * frame_bytes ||
      h.smallest_record > h.largest_record || h.largest_record > h.payload_bytes)
    refuse("makes no sense: {} records of {} to {} bytes, in all {}", h.records, h.smallest_record, h.largest_record,
           h.payload_bytes);
}

FileIndex checked(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, bool mapped, const FileId& data,
                  const CountOptions& options) {
  Header h{};
  if (bytes.size() < sizeof h || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0)
    refuse("is no index of feedline");
  std::memcpy(&h, bytes.data(), sizeof h);
  if (h.version != format_version) refuse("has format version {}, this feedline reads {}", h.version, format_version);
  const uint64_t most = bytes.size();
  const bool fits = h.entries <= most && h.sums <= most && h.bad <= most && h.message_bytes <= most;  // no overflow
  if (!fits || most != sizeof h + h.entries * sizeof(IndexEntry) + h.sums * sizeof(uint64_t) + h.bad * sizeof(BadRow) +
                           h.message_bytes)
    refuse("has {} bytes, which is not what its header says: cut short or damaged", most);
  if (const uint32_t crc = crc32c(bytes.subspan(crc_covers_from)); crc != h.crc)
    refuse("is damaged: its checksum is {:08x}, it says {:08x}", crc, h.crc);
  check_key(h, data, options);

  size_t at = sizeof h;
  const auto rows = [&]<typename T>(uint64_t count) {
    const auto part = bytes.subspan(at, count * sizeof(T));
    at += part.size();
    return std::span(reinterpret_cast<const T*>(part.data()), count);
  };
  const auto entries = rows.operator()<IndexEntry>(h.entries);
  const auto sums = rows.operator()<uint64_t>(h.sums);
  const auto bad = rows.operator()<BadRow>(h.bad);
  check_content(h, entries, sums, bad);

  FileIndex index;
  index.compression = static_cast<Compression>(h.compression);
  index.stride = h.stride;
  index.records = h.records;
  index.payload_bytes = h.payload_bytes;
  index.smallest_record = h.smallest_record;
  index.largest_record = h.largest_record;
  index.end = h.end;
  index.stream_size = h.stream_size;
  index.audit = h.audit;
  index.entries = {entries, owner, mapped};
  index.sums = {sums, std::move(owner), mapped};
  index.bad.reserve(bad.size());
  for (const BadRow& row : bad) {
    if (!is_damage(row.category) || row.message_bytes > bytes.size() - at)
      refuse("makes no sense: a bad region of category {}, with {} bytes to say", row.category, row.message_bytes);
    std::string message(reinterpret_cast<const char*>(bytes.data() + at), row.message_bytes);
    at += row.message_bytes;
    index.bad.push_back({row.offset, row.length, row.record, static_cast<Category>(row.category), std::move(message)});
  }
  if (at != bytes.size()) refuse("makes no sense: there are {} bytes behind its messages", bytes.size() - at);
  return index;
}

// Gives its bytes to `write`, part by part.
void write_parts(const FileIndex& index, const FileId& data, const CountOptions& options,
                 const std::function<void(std::span<const std::byte>)>& write) {
  std::vector<BadRow> bad;
  std::string messages;
  bad.reserve(index.bad.size());
  for (const BadRegion& region : index.bad) {
    bad.push_back({region.offset, region.length, region.record, static_cast<uint32_t>(region.category),
                   static_cast<uint32_t>(region.message.size())});
    messages += region.message;
  }
  Header h{.magic = magic,
           .version = format_version,
           .crc = 0,
           .file_size = data.size,
           .file_version = data.version,
           .asked = static_cast<uint32_t>(options.compression),
           .compression = static_cast<uint32_t>(index.compression),
           .record_limit = options.record_limit,
           .stride = index.stride,
           .reserved = 0,
           .records = index.records,
           .payload_bytes = index.payload_bytes,
           .smallest_record = index.smallest_record,
           .largest_record = index.largest_record,
           .end = index.end,
           .stream_size = index.stream_size,
           .audit = index.audit,
           .entries = index.entries.size(),
           .sums = index.sums.size(),
           .bad = bad.size(),
           .message_bytes = messages.size()};
  const auto header = std::as_bytes(std::span(&h, 1));
  const std::array<std::span<const std::byte>, 4> tables = {bytes_of(index.entries), bytes_of(index.sums),
                                                            bytes_of(bad), bytes_of(messages)};
  h.crc = crc32c(header.subspan(crc_covers_from));
  for (const auto& table : tables) h.crc = crc32c_extend(h.crc, table);
  write(header);
  for (const auto& table : tables) write(table);
}

}  // namespace

void write_index(const std::string& path, const FileIndex& index, const FileId& data, const CountOptions& options) {
  OutputFile file(path);
  write_parts(index, data, options, [&](std::span<const std::byte> part) { file.write(part); });
  file.publish_unsynced();  // torn, it is refused and made again; a thousand syncs take longer than that
}

std::string index_bytes(const FileIndex& index, const FileId& data, const CountOptions& options) {
  std::string bytes;
  write_parts(index, data, options, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return bytes;
}

IndexFile parse_index(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, bool mapped,
                      const FileId& data, const CountOptions& options) {
  try {
    return {checked(bytes, std::move(owner), mapped, data, options), ""};
  } catch (const Refused& refused) {
    return {std::nullopt, refused.why};
  }
}

IndexFile read_index(const std::string& path, const FileId& data, const CountOptions& options) {
  std::shared_ptr<const WholeFile> file;
  try {
    file = WholeFile::open(path);
  } catch (const Error& error) {
    return {std::nullopt, error.message()};
  }
  if (!file) return {};
  return parse_index(file->bytes(), file, file->mapped(), data, options);
}

}  // namespace feedline::io
