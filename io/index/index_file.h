// NAME.feedline-index: a FileIndex on disk.
//
// Little-endian, fixed layout; everything begins at a multiple of 8:
//
//    0  "feedlidx"                        64  u64 records
//    8  u32 format version: 1             72  u64 payload_bytes
//   12  u32 CRC32C of all behind it       80  u64 smallest_record
//   16  u64 size of the data file         88  u64 largest_record
//   24  u64 its mtime in ns               96  u64 end
//   32  u32 compression asked for        104  u64 stream_size
//   36  u32 compression found            112  u64 audit
//   40  u64 record_limit                 120  u64 number of entries      u64 offset, u64 record   each
//   48  u64 stride                       128  u64 number of sums         u64
//   56  u64 0                            136  u64 number of bad regions  u64 offset, length, record; u32 category;
//                                        144  u64 bytes of messages          u32 bytes of its message
//
// then the entries, the sums, the bad regions and their messages, one behind the other. At the default stride it has
// less than 0.1 % of a file of 16 MiB or more.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "io/index/count_records.h"
#include "io/index/index.h"
#include "io/read/read_backend.h"

namespace feedline::io {

/// Writes a file whole or not at all. `data` and `options`: what was counted, and how. Throws Error io_error.
void write_index(const std::string& path, const FileIndex& index, const FileId& data, const CountOptions& options);

/// What write_index() writes.
std::string index_bytes(const FileIndex& index, const FileId& data, const CountOptions& options);

struct IndexFile {
  std::optional<FileIndex> index;
  /// Why there is no index, for people: "has 12 bytes, ...: cut short". Empty where there is no such file.
  std::string refused;
};

/// Reads the index at `path`, if it is one of `data` made with `options` (the way of counting aside). It is copied into
/// memory, and the copy is checked: it can be wrong, but not cause harm (io/index/index_check.h). Nothing is allocated before
/// the header has said a size that such an index can have. Does not throw.
IndexFile read_index(const std::string& path, const FileId& data, const CountOptions& options);

/// Reads one that lies in memory.
IndexFile parse_index(std::span<const std::byte> bytes, const FileId& data, const CountOptions& options);

}  // namespace feedline::io
