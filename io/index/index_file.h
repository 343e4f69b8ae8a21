// The format of .NAME.feedline-index, a FileIndex on disk.
//
// The layout is fixed and little-endian. Every table of numbers begins at a multiple of 8:
//
//    0  "feedlidx"                        64  u64 records
//    8  u32 format version: 2             72  u64 payload_bytes
//   12  u32 CRC32C of all bytes from 16   80  u64 smallest_record
//   16  u64 size of the data file         88  u64 largest_record
//   24  u64 mtime of the data file, ns    96  u64 end
//   32  u32 compression asked for        104  u64 stream_size
//   36  u32 compression found            112  u64 audit
//   40  u64 record_limit                 120  u64 number of entries      u64 offset, u64 record   each
//   48  u64 stride                       128  u64 number of sums         u64
//   56  u64 0                            136  u64 number of bad regions  u64 offset, length, record; u32 category;
//                                        144  u64 bytes of messages          u32 bytes of its message
//                                        152  u64 number of seek points   u64 offset, bit, member_size, check,
//                                        160  u64 bytes of windows            window_end
//
// After the header come the entries, the sums, the seek points, the bad regions, the windows and the messages, without
// gaps. At the default stride the index of a file of 16 MiB or more takes less than 0.1 % of the size of that file. The
// windows of a compressed file take up to 0.8 % of its inflated size more.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "io/index/count_records.h"
#include "io/index/index.h"
#include "io/read/read_backend.h"

namespace feedline::io {

/// Writes the index to a file at `path`, which appears whole or not at all. `data` is the file that was counted, and
/// `options` is how it was counted. Throws Error io_error if the system refuses.
void write_index(const std::string& path, const FileIndex& index, const FileId& data, const CountOptions& options);

/// Returns the bytes that write_index() writes.
std::string index_bytes(const FileIndex& index, const FileId& data, const CountOptions& options);

struct IndexFile {
  std::optional<FileIndex> index;
  /// A text for people that says why there is no index: "has 12 bytes, ...: it is cut short". Empty if there is an
  /// index, or if no file exists at the path.
  std::string refused;
};

/// Reads the index at `path`. Rejects it if it does not belong to `data`, or if it was made with a stride, record_limit
/// or compression that differs from `options`. Does not throw: the result says why an index was rejected.
///
/// The index is copied into memory, and the copy is checked. The checks cannot prove that each entry is right, but an
/// index that passes them causes no access out of bounds (io/index/index_check.h). Memory is allocated only after the
/// header has proved consistent with the size of the file.
IndexFile read_index(const std::string& path, const FileId& data, const CountOptions& options);

/// Does what read_index() does, for an index that lies in memory.
IndexFile parse_index(std::span<const std::byte> bytes, const FileId& data, const CountOptions& options);

}  // namespace feedline::io
