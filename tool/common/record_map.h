// Where the records of a list of files are: found in one pass over all of them, then any range of records is read.
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

namespace feedline::cli {

/// What tells one state of a file from another.
struct FileIdentity {
  std::string path;  // absolute
  uint64_t size = 0;
  int64_t mtime_ns = 0;

  bool operator==(const FileIdentity&) const = default;
};

/// Throws Error io_error for what is no regular file.
FileIdentity identify(const std::string& path);

struct MappedFile {
  FileIdentity identity;
  Compression compression = Compression::none;
  uint64_t records = 0;        // good ones
  uint64_t payload_bytes = 0;  // of them
  /// Records whose places are known, ascending, the first of the file among them. Of a compressed file only that.
  std::vector<io::IndexEntry> marks;
  /// Where damage begins; ascending.
  std::vector<uint64_t> bad_offsets;

  /// What the good records take as TFRecord data.
  uint64_t framed_bytes() const noexcept { return payload_bytes + records * 16; }
};

/// Good records are numbered through all files in their order.
class RecordMap {
 public:
  explicit RecordMap(std::vector<MappedFile> files);

  const std::vector<MappedFile>& files() const noexcept { return files_; }
  uint64_t records() const noexcept { return first_.back(); }
  /// Of a file's first record; of the number of files, records().
  uint64_t first_record(size_t file) const noexcept { return first_[file]; }
  /// Which file a record is in.
  size_t file_of(uint64_t record) const noexcept;
  uint64_t framed_bytes() const noexcept;

  /// Keeps only the marks nearest at or before these records (ascending) and at each file's begin.
  void thin_marks(std::span<const uint64_t> records);
  /// Ranges of about `bytes` each that begin at marks, or at files where these are compressed: the first records, and
  /// records() at the end.
  std::vector<uint64_t> ranges(uint64_t bytes) const;

 private:
  std::vector<MappedFile> files_;
  std::vector<uint64_t> first_;
};

/// Reads and verifies all files, several at a time. `damage`: what is wrong with each file. Throws Error io_error.
/// progress: how many more bytes were read; from several threads; may throw to stop.
RecordMap map_records(const std::vector<FileIdentity>& files, std::vector<std::vector<io::BadRegion>>& damage,
                      const std::function<void(uint64_t bytes)>& progress);

/// Reads ranges of records; cheapest one behind another. Every record is verified again. Not thread-safe.
class RecordCursor {
 public:
  explicit RecordCursor(const RecordMap& map) : map_(map) {}

  /// Hands out records [begin, end) in order. Throws Error: io_error; or the damage's, where there was none when the
  /// files were mapped.
  void read(uint64_t begin, uint64_t end,
            const std::function<void(uint64_t number, const io::RecordView& record)>& on_record);

 private:
  void seek(uint64_t record);
  io::RecordView next();
  [[noreturn]] void changed(const std::string& how) const;

  const RecordMap& map_;
  size_t file_ = 0;
  std::optional<io::RecordStream> stream_;  // of files()[file_]
  size_t view_ = 0;                         // of stream_->records(), handed out
};

}  // namespace feedline::cli
