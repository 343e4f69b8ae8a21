// A reader and a writer of single TFRecord files, for programs that need no feeder.
//
// A record is
//
//   uint64 length | uint32 masked CRC32C of the length | payload | uint32 masked CRC32C of the payload
//
// with little-endian numbers (tensorflow/core/lib/io/record_writer.h). A file is a sequence of records without gaps,
// either plain or inside a gzip or zlib stream. The reader always verifies both checksums of every record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "feedline/error.h"
#include "feedline/export.h"

namespace feedline {

/// The compression of a file. `automatic` decides by the first bytes of the file, not by its name.
enum class Compression : uint8_t { automatic, none, gzip, zlib };

/// A record whose two checksums are right.
struct Record {
  std::span<const std::byte> payload;
  uint64_t offset = 0;      // where its header begins: bytes from the start of the file, or of the inflated stream
  uint64_t number = 0;      // the number of good records before it in the file
  uint32_t stored_crc = 0;  // the masked CRC32C of the payload, as it stands in the file
};

/// The result of RecordReader::next().
enum class ReadResult : uint8_t { record, end, error };

/// Reads the records of one file from front to back. Not thread-safe: one thread may use a reader at a time.
///
/// A reader holds a few buffers of 256 KiB, and memory for the longest record.
class FEEDLINE_PUBLIC RecordReader {
 public:
  struct Options {
    Compression compression = Compression::automatic;
    /// The largest payload in bytes that the reader accepts. A longer one is damage of the category record_too_large.
    /// Values above 4 GiB - 1 mean 4 GiB - 1.
    uint64_t record_limit = uint64_t{256} << 20;
  };

  /// Opens the file. Throws Error io_error if it cannot be opened or is not a regular file.
  explicit RecordReader(std::string file);
  RecordReader(std::string file, const Options& options);
  ~RecordReader();
  RecordReader(RecordReader&&) noexcept;
  RecordReader& operator=(RecordReader&&) noexcept;

  /// Reads the next record, and returns:
  /// * `record`: `record` is filled in. Its payload lies in the reader's memory and is valid until the next call.
  /// * `end`: the file has no more records. All further calls return `end`, too.
  /// * `error`: the bytes that come next do not form a good record. error() says what is wrong and where, and skipped()
  ///   says which bytes are lost. The next call continues after these bytes. It returns a record that is proven to
  ///   belong to the file (the rules are in io/records/resync.h), or further damage, or the end.
  ///
  /// Throws Error io_error if the system cannot read the file, or if the file has become shorter. A further call tries
  /// to read again if the file is not compressed, and throws the same Error again if it is.
  ReadResult next(Record& record);

  /// Returns the Error that describes the damage of the last `error` result. Precondition: next() has returned `error`.
  const Error& error() const;

  /// A range of byte positions, [offset, offset + length): in the file or, if the file is compressed, in the inflated
  /// stream.
  struct Region {
    uint64_t offset = 0, length = 0;
  };
  /// Returns the bytes that the last `error` result skipped. Precondition: next() has returned `error`.
  Region skipped() const;

  /// Returns the file's compression, which is never `automatic`.
  Compression compression() const;
  /// Returns how many bytes of the file have been read so far, before inflating. Use this only to show
  /// progress, because the reader reads ahead of the records that it returns.
  uint64_t file_position() const;
  /// Returns the size of the file in bytes, before inflating.
  uint64_t file_size() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes a file of records that appears under its name either whole or not at all. The bytes go to a file with a
/// temporary name in the same folder. close() flushes and syncs that file, and renames it. If a writer is destroyed
/// without close(), nothing is left. Not thread-safe.
///
/// Every member throws Error io_error, with the file as its place, if the system refuses (because the disk is full, for
/// instance). A writer that has failed, or that was closed, refuses further writes in the same way.
class FEEDLINE_PUBLIC RecordWriter {
 public:
  struct Options {
    Compression compression = Compression::none;  // `none` or `gzip`
  };

  /// Creates the temporary file. Throws Error bad_pipeline if the compression is neither `none` nor `gzip`.
  explicit RecordWriter(std::string file);
  RecordWriter(std::string file, const Options& options);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  /// Appends a record with this payload. The bytes are copied. Throws Error record_too_large, and writes nothing, if
  /// the payload has more than 4 GiB - 1 bytes, which no reader accepts. The writer may still be used afterwards.
  void write(std::span<const std::byte> payload);
  /// Completes the file and gives it its name. A file that has this name already is replaced.
  void close();

  /// Returns the number of records written so far.
  uint64_t records() const noexcept;
  /// Returns the number of bytes of TFRecord data written so far, before compression. It includes 16 bytes per record
  /// for header and checksums.
  uint64_t bytes() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline
