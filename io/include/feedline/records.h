// TFRecord files alone: a reader and a writer.
//
// A record is  uint64 length | uint32 masked CRC32C of the length | payload | uint32 masked CRC32C of the payload,
// little-endian (tensorflow/core/lib/io/record_writer.h). A file is records one after another, plain or inside gzip
// or zlib streams. Both checksums of every record are always verified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "feedline/error.h"
#include "feedline/export.h"

namespace feedline {

enum class Compression : uint8_t { automatic, none, gzip, zlib };  // automatic looks at the content, not at the name

struct Record {
  std::span<const std::byte> payload;
  uint64_t offset = 0;      // of its first header byte; in the inflated stream of a compressed file
  uint64_t number = 0;      // good records before it in the file
  uint32_t stored_crc = 0;  // of the payload, masked, as it stands in the file
};

enum class ReadResult : uint8_t { record, end, error };

/// Reads one file from front to back. Not thread-safe; one thread at a time.
class FEEDLINE_PUBLIC RecordReader {
 public:
  struct Options {
    Compression compression = Compression::automatic;
    uint64_t record_limit = uint64_t{256} << 20;  // a longer record is an error
  };

  /// Throws Error io_error when the file cannot be opened. Memory: a few buffers of 256 KiB, and the longest record.
  explicit RecordReader(std::string file);
  RecordReader(std::string file, const Options& options);
  ~RecordReader();
  RecordReader(RecordReader&&) noexcept;
  RecordReader& operator=(RecordReader&&) noexcept;

  /// record: `record` is filled in and its payload stays valid until the next call.
  /// end:    the file is over; so say all further calls.
  /// error:  error() says what and where, skipped() which bytes are lost. The next call goes on behind them, with a
  ///         record that is proven to belong to the file (io/records/resync.h), or at the end.
  ReadResult next(Record& record);

  /// Of the last `error` result.
  const Error& error() const;
  struct Region {
    uint64_t offset = 0, length = 0;
  };
  Region skipped() const;

  /// What `automatic` turned out to be.
  Compression compression() const;
  /// Bytes of the file consumed so far, for progress; and its size.
  uint64_t file_position() const;
  uint64_t file_size() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes a file of whole records, or none: the bytes go to a temporary name beside `file`; close() flushes, syncs
/// and renames it into place. Destroyed without close(), nothing is left. Not thread-safe.
class FEEDLINE_PUBLIC RecordWriter {
 public:
  struct Options {
    Compression compression = Compression::none;  // none or gzip
  };

  /// Every member throws Error io_error, naming the file, when the system refuses (a full disk, say).
  explicit RecordWriter(std::string file);
  RecordWriter(std::string file, const Options& options);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  void write(std::span<const std::byte> payload);
  void close();

  uint64_t records() const noexcept;
  /// Bytes of TFRecord data so far, before compression.
  uint64_t bytes() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline
