// The places (file and byte offset) of the records in a list of files. One pass over all files finds the places. After
// this pass any range of records can be read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "feedline/records.h"
#include "io/index/index.h"
#include "io/records/record_stream.h"

namespace feedline::tool {

/// Identifies the state of a file: if the size or the version (io::FileId) differs, the file has changed.
struct FileIdentity {
  std::string path;  // absolute, or a name with a scheme (SCHEME://...)
  uint64_t size = 0;
  uint64_t version = 0;

  bool operator==(const FileIdentity&) const = default;
};

/// Returns the file's identity. Throws Error io_error as io::Source::stat() does.
FileIdentity identify(const std::string& path);

/// Where the records of one file are.
struct MappedFile {
  FileIdentity identity;
  Compression compression = Compression::none;
  uint64_t records = 0;        // the number of good records
  uint64_t payload_bytes = 0;  // bytes of the good records' payloads
  /// The marks: records whose places in the file are known, in ascending order. The first mark is the file's first
  /// record. A compressed file has only this mark.
  std::vector<io::IndexEntry> marks;
  /// The offsets at which damaged regions begin, in ascending order.
  std::vector<uint64_t> bad_offsets;

  /// Returns the number of bytes that the good records take as TFRecord data.
  uint64_t framed_bytes() const noexcept { return payload_bytes + records * 16; }
};

/// The records of all files. Good records are numbered across all files, in the files' order.
class RecordMap {
 public:
  /// `record_limit`: a record with a payload of more bytes is bad.
  RecordMap(std::vector<MappedFile> files, uint64_t record_limit);

  const std::vector<MappedFile>& files() const noexcept { return files_; }
  uint64_t records() const noexcept { return first_.back(); }
  /// Returns the number of a file's first record. If `file` is the number of files, returns records().
  uint64_t first_record(size_t file) const noexcept { return first_[file]; }
  /// Returns the file that contains a record.
  size_t file_of(uint64_t record) const noexcept;
  uint64_t framed_bytes() const noexcept;
  uint64_t record_limit() const noexcept { return record_limit_; }

  /// Removes the marks that a RecordCursor does not need in order to begin at any of `records`, which are ascending.
  /// Each file keeps its first mark and, for each of `records`, the last mark at or before that record.
  void thin_marks(std::span<const uint64_t> records);
  /// Divides the records into ranges of about `bytes` each. Every range begins at a mark, so a compressed file is one
  /// range. Returns the first record of each range, and records() at the end.
  std::vector<uint64_t> ranges(uint64_t bytes) const;

 private:
  std::vector<MappedFile> files_;
  std::vector<uint64_t> first_;
  uint64_t record_limit_;
};

/// Reads and verifies all files, several at a time. Sets damage[i] to the damaged regions of files[i]. Calls `progress`
/// with the number of bytes read since the last call, from several threads; `progress` may throw to stop. Throws Error
/// io_error.
RecordMap map_records(const std::vector<FileIdentity>& files, uint64_t record_limit,
                      std::vector<std::vector<io::BadRegion>>& damage,
                      const std::function<void(uint64_t bytes)>& progress);

/// Reads ranges of records, and verifies every record again. It costs the least to read a range that begins where the
/// last range ended, because no record before the range is read again. Not thread-safe.
class RecordCursor {
 public:
  explicit RecordCursor(const RecordMap& map) : map_(map) {}

  /// Calls on_record for the records [begin, end), in order. Throws Error io_error, or the error of a damaged record
  /// that was not damaged when the files were mapped.
  void read(uint64_t begin, uint64_t end,
            const std::function<void(uint64_t number, const io::RecordView& record)>& on_record);

 private:
  /// Moves to `record`: the following call of next() returns it.
  void seek(uint64_t record);
  /// Returns the next good record of the file.
  io::RecordView next();

  const RecordMap& map_;
  size_t file_ = 0;
  std::optional<io::RecordStream> stream_;  // reads files()[file_]
  size_t view_ = 0;                         // how many records of stream_->records() were returned by next()
};

}  // namespace feedline::tool
