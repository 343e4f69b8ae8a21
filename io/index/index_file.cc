#include "io/index/index_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "io/file.h"
#include "io/index/index_check.h"
#include "io/output_file.h"
#include "io/records/crc32c.h"

namespace feedline::io {
namespace {

static_assert(std::endian::native == std::endian::little, "the tables are read as they lie");

constexpr std::array<char, 8> magic = {'f', 'e', 'e', 'd', 'l', 'i', 'd', 'x'};
constexpr uint32_t format_version = 2;

struct Header {
  std::array<char, 8> magic;
  uint32_t version, crc;
  uint64_t file_size, file_version;
  uint32_t asked, compression;
  uint64_t record_limit, stride, reserved;
  uint64_t records, payload_bytes, smallest_record, largest_record, end, stream_size, audit;
  uint64_t entries, sums, bad, message_bytes, seek_points, window_bytes;
};
static_assert(sizeof(Header) == 168);
constexpr size_t crc_covers_from = 16;
constexpr uint64_t most_message_bytes = 1 << 20;  // far more than kept_messages messages have

struct BadRow {
  uint64_t offset, length, record;
  uint32_t category, message_bytes;
};
static_assert(sizeof(BadRow) == 32 && sizeof(IndexEntry) == 16 && sizeof(SeekEntry) == 40);

// Returns whether this is a category that the counting pass gives to bad regions.
bool is_damage(uint32_t category) noexcept { return category <= static_cast<uint32_t>(Category::bad_compression); }

template <typename T>
std::span<const std::byte> bytes_of(const T& rows) {
  return std::as_bytes(std::span(rows.begin(), rows.end()));
}

// Thrown if an index is refused; `why` is for people.
struct Refused {
  std::string why;
};

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Refused{fmt::format(format, std::forward<Args>(args)...)};
}

// Throws Refused if the index was made for a different file, for an earlier version of the file, or with different
// options.
void check_key(const Header& h, const FileId& data, const CountOptions& options) {
  if (h.file_size != data.size) refuse("was made for a file of {} bytes, but the file has {}", h.file_size, data.size);
  if (h.file_version != data.version) refuse("was made before the data file was last written to");
  if (h.stride != options.stride)
    refuse("was made with a stride of {} bytes, but the stride is {} bytes now", h.stride, options.stride);
  if (h.record_limit != options.record_limit)
    refuse("was made with a record_limit of {} bytes, but the limit is {} bytes now", h.record_limit,
           options.record_limit);
  const auto asked = static_cast<uint32_t>(options.compression);
  if (h.asked != asked && h.compression != asked) refuse("was made when the pipeline had a different 'compression'");
}

// Checks the header, as far as that is possible before the tables are read. Throws Refused if it is wrong.
void check_header(const Header& h, uint64_t bytes, const FileId& data) {
  const auto compression = static_cast<Compression>(h.compression);
  if (compression == Compression::automatic || h.compression > static_cast<uint32_t>(Compression::zlib))
    refuse("is damaged: it names compression {}, which does not exist", h.compression);
  if (!can_be_stream(compression, h.stream_size, data.size))
    refuse("is damaged: it says that a file of {1} bytes holds {0} bytes of records", h.stream_size, data.size);
  // Because of these bounds, the sum of the sizes below does not overflow.
  const bool plausible = h.entries == entries_of(h.stream_size, h.stride) &&
                         h.sums == sums_of(h.stream_size, h.stride) && h.bad <= most_bad_regions &&
                         h.message_bytes <= most_message_bytes &&
                         h.seek_points <= most_seek_points(compression, h.stream_size) &&
                         h.window_bytes <= h.seek_points * most_window_bytes;
  if (!plausible)
    refuse(
        "is damaged: its header says {} entries, {} sums, {} bad regions with messages of {} bytes, and {} seek points "
        "with windows of {} bytes, which do not fit the data file",
        h.entries, h.sums, h.bad, h.message_bytes, h.seek_points, h.window_bytes);
  if (bytes != sizeof h + h.entries * sizeof(IndexEntry) + h.sums * sizeof(uint64_t) + h.bad * sizeof(BadRow) +
                   h.seek_points * sizeof(SeekEntry) + h.window_bytes + h.message_bytes)
    refuse("has {} bytes, but its header says a different size: it is cut short or damaged", bytes);
}

// A function that fills `into` with the next bytes of an index.
using TakeBytes = std::function<void(std::span<std::byte> into)>;

// Reads an index of `size` bytes and checks everything. Throws Refused.
FileIndex checked(uint64_t size, const TakeBytes& take, const FileId& data, const CountOptions& options) {
  Header h{};
  const auto header = std::as_writable_bytes(std::span(&h, 1));
  if (size >= sizeof h) take(header);
  if (h.magic != magic) refuse("is not an index of feedline");
  if (h.version != format_version)
    refuse("has format version {}, but this version of feedline reads {}", h.version, format_version);
  check_key(h, data, options);
  check_header(h, size, data);

  uint32_t crc = crc32c(header.subspan(crc_covers_from));
  const auto rows = [&]<typename T>(std::vector<T> table) {
    const auto bytes = std::as_writable_bytes(std::span(table));
    take(bytes);
    crc = crc32c_extend(crc, bytes);
    return table;
  };
  FileIndex index{.compression = static_cast<Compression>(h.compression),
                  .stride = h.stride,
                  .records = h.records,
                  .payload_bytes = h.payload_bytes,
                  .smallest_record = h.smallest_record,
                  .largest_record = h.largest_record,
                  .end = h.end,
                  .stream_size = h.stream_size,
                  .audit = h.audit,
                  .entries = rows(std::vector<IndexEntry>(h.entries)),
                  .sums = rows(std::vector<uint64_t>(h.sums)),
                  .seek_points = rows(std::vector<SeekEntry>(h.seek_points)),
                  .windows = {},
                  .bad = {}};
  const auto bad = rows(std::vector<BadRow>(h.bad));
  index.windows = rows(std::vector<std::byte>(h.window_bytes));
  const auto messages = rows(std::vector<char>(h.message_bytes));
  if (crc != h.crc) refuse("is damaged: its content has the checksum {:08x}, but its header says {:08x}", crc, h.crc);

  index.bad.reserve(bad.size());
  size_t at = 0;
  for (const BadRow& row : bad) {
    if (!is_damage(row.category) || row.message_bytes > messages.size() - at)
      refuse("is damaged: it lists a bad region of category {} with a message of {} bytes", row.category,
             row.message_bytes);
    index.bad.push_back({row.offset, row.length, row.record, static_cast<Category>(row.category),
                         std::string(messages.data() + at, row.message_bytes)});
    at += row.message_bytes;
  }
  if (at != messages.size()) refuse("is damaged: {} bytes follow its last message", messages.size() - at);
  if (std::string why = contradiction(index, data.size, options.record_limit); !why.empty()) throw Refused{why};
  return index;
}

// Gives the bytes of an index to `write`, one part after another.
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
           .message_bytes = messages.size(),
           .seek_points = index.seek_points.size(),
           .window_bytes = index.windows.size()};
  const auto header = std::as_bytes(std::span(&h, 1));
  const std::array<std::span<const std::byte>, 6> tables = {bytes_of(index.entries),     bytes_of(index.sums),
                                                            bytes_of(index.seek_points), bytes_of(bad),
                                                            bytes_of(index.windows),     bytes_of(messages)};
  h.crc = crc32c(header.subspan(crc_covers_from));
  for (const auto& table : tables) h.crc = crc32c_extend(h.crc, table);
  write(header);
  for (const auto& table : tables) write(table);
}

}  // namespace

void write_index(const std::string& path, const FileIndex& index, const FileId& data, const CountOptions& options) {
  OutputFile file(path);
  write_parts(index, data, options, [&](std::span<const std::byte> part) { file.write(part); });
  // The file is not synced. An index that a power cut leaves incomplete is refused and made again, which takes less
  // time than the syncs of a thousand indexes.
  file.publish_unsynced();
}

std::string index_bytes(const FileIndex& index, const FileId& data, const CountOptions& options) {
  std::string bytes;
  write_parts(index, data, options, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return bytes;
}

IndexFile parse_index(std::span<const std::byte> bytes, const FileId& data, const CountOptions& options) {
  const auto take = [left = bytes](std::span<std::byte> into) mutable {
    if (!into.empty()) std::memcpy(into.data(), left.data(), into.size());
    left = left.subspan(into.size());
  };
  try {
    return {checked(bytes.size(), take, data, options), ""};
  } catch (const Refused& refused) {
    return {std::nullopt, refused.why};
  }
}

IndexFile read_index(const std::string& path, const FileId& data, const CountOptions& options) {
  try {
    const std::optional<InputFile> file = InputFile::find(path);
    if (!file) return {};
    const auto take = [&file, at = uint64_t{0}](std::span<std::byte> into) mutable {
      file->read_at(at, into);
      at += into.size();
    };
    return {checked(file->size(), take, data, options), ""};
  } catch (const Refused& refused) {
    return {std::nullopt, refused.why};
  } catch (const Error& error) {
    return {std::nullopt, error.message()};
  }
}

}  // namespace feedline::io
