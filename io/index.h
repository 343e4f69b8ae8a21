// Where the records of a file are: the result of the counting pass, which verifies the whole file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "feedline/records.h"

namespace feedline::io {

inline constexpr uint64_t default_stride = 16384;

struct IndexEntry {
  uint64_t offset = 0;  // of the record's header; in the inflated stream of a compressed file
  uint64_t record = 0;  // good records before it
};

/// Bytes that are no good record, with the error that they gave.
struct BadRegion {
  uint64_t offset = 0, length = 0;
  uint64_t record = 0;  // good records before it
  Error error;
};

struct FileIndex {
  Compression compression = Compression::none;  // what it is, never automatic
  uint64_t stride = default_stride;
  uint64_t records = 0;         // good ones
  uint64_t payload_bytes = 0;   // of them
  uint64_t largest_record = 0;  // payload bytes
  uint64_t end = 0;             // offset behind the last good record

  /// entries[k]: the first good record that begins at or behind k * stride; then {end, records}, for as many k as the
  /// stream has strides, and once more. So entries.front() is the first record, entries.back() is {end, records}.
  std::vector<IndexEntry> entries;
  std::vector<BadRegion> bad;  // ascending, disjoint; the good records lie between them without gaps

  uint64_t memory_bytes() const noexcept { return entries.capacity() * sizeof(IndexEntry); }
};

struct CountOptions {
  Compression compression = Compression::automatic;
  uint64_t record_limit = uint64_t{256} << 20;
  uint64_t stride = default_stride;
};

/// Reads and verifies a whole file; blocking. Damage goes into `bad`, it does not throw; Error io_error does.
/// `progress`, if set, is told from time to time how many more bytes of the file were read; it may throw to stop.
FileIndex count_records(const std::string& file, const CountOptions& options,
                        const std::function<void(uint64_t bytes)>& progress = {});

}  // namespace feedline::io
