// Reads one file: its verified records, many at a time, and the damage between them. RecordReader
// (feedline/records.h) and the counting pass (io/index/count_records.h) are built on it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "feedline/records.h"
#include "io/file.h"
#include "io/records/bad_region.h"
#include "io/records/inflate.h"
#include "io/records/record_scanner.h"
#include "io/records/resync.h"

namespace feedline::io {

/// Reads one file from front to back. Not thread-safe.
///
/// Memory: one buffer of 256 KiB or of the longest record, whichever is larger; for a compressed file, a buffer of
/// compressed input; and after the first damaged record, the buffers in which Resync searches for the next good one.
/// Nothing is allocated per record. The length that a record states is compared with record_limit and the size of the
/// file before memory is reserved. In a compressed stream, whose size is unknown, memory for a record grows only as its
/// bytes arrive.
class RecordStream {
 public:
  enum class Found : uint8_t {
    records,  // records() has at least one record
    damage,   // damage() says what is wrong and where; the next call continues after it
    end,      // the file has no more records; all further calls say so, too
  };

  /// Reads the whole file. Throws Error io_error if the file cannot be opened or read.
  RecordStream(const std::string& file, Compression compression, uint64_t record_limit);
  RecordStream(std::shared_ptr<const SourceFile> file, Compression compression, uint64_t record_limit);

  /// Selects the constructor that reads one chain of a plain file. A chain is a sequence of good records without a gap.
  /// It begins at offset 0, or at the offset that go_on_at() was given. At its end, where no good record follows,
  /// next() returns `end` and never `damage`, and offset() is the end of the chain.
  struct Chain {};
  RecordStream(std::shared_ptr<const SourceFile> file, Chain, uint64_t record_limit);

  /// Goes to the next records or the next damage. Throws Error io_error if the file cannot be read. A further call
  /// tries to read again if the file is not compressed, and throws the same Error again if it is.
  Found next();

  /// Continues at `offset` of the file, before which there are `number` good records. Precondition: the file is not
  /// compressed.
  void go_on_at(uint64_t offset, uint64_t number);

  /// Returns the records that next() has found. They lie in the stream without gaps, the first one at offset(). They
  /// are valid until the next call of next() or go_on_at().
  std::span<const RecordView> records() const noexcept { return {views_.data(), count_}; }
  uint64_t offset() const noexcept { return offset_; }
  /// Returns the number of good records before records() or damage().
  uint64_t number() const noexcept { return number_; }
  const BadRegion& damage() const noexcept { return damage_; }

  /// Looks for seek points while the file is inflated (Inflater::find_seek_points()). Precondition: the file is
  /// compressed, and next() has not been called.
  void find_seek_points(uint64_t spacing, SeekPointFound found) {
    inflater_->find_seek_points(spacing, std::move(found));
  }

  /// Returns the compression of the file, which is never `automatic`.
  Compression compression() const noexcept { return compression_; }
  /// Returns how many bytes of the file have been read so far, before inflating.
  uint64_t position() const noexcept { return file_position_; }
  /// Returns the size of the file in bytes, before inflating.
  uint64_t size() const noexcept { return file_->size(); }
  /// Returns the size of the stream in bytes, after inflating. Precondition: next() has returned `end`.
  uint64_t stream_size() const noexcept { return position_of(end_); }

 private:
  uint64_t position_of(size_t buffer_index) const noexcept { return buffer_offset_ + buffer_index; }
  bool plain() const noexcept { return compression_ == Compression::none; }
  bool fill(uint64_t wanted);
  size_t read(std::span<std::byte> into);
  void reserve(size_t capacity);
  uint64_t discard(uint64_t bytes);
  void go_to(uint64_t offset);
  Found report(Category category, std::string message, uint64_t length);
  Found report_cut(uint64_t wanted);
  Found report_damage(Category category, uint64_t wanted);

  const std::shared_ptr<const SourceFile> file_;
  const uint64_t limit_;
  const bool chain_;
  Compression compression_ = Compression::none;
  uint64_t file_position_ = 0;

  // buffer_[begin_, end_) holds what has been read but not yet scanned.
  std::unique_ptr<std::byte[]> buffer_;
  size_t capacity_ = 0, begin_ = 0, end_ = 0;
  uint64_t buffer_offset_ = 0;  // the offset of buffer_[0] in the stream
  bool source_ended_ = false;

  std::optional<Inflater> inflater_;
  std::unique_ptr<std::byte[]> input_;
  std::span<const std::byte> input_left_;
  std::exception_ptr failure_;  // why the file could not be read; only if it is compressed
  bool inflate_failed_ = false;

  std::array<RecordView, 512> views_;
  size_t count_ = 0;
  uint64_t offset_ = 0, number_ = 0;
  BadRegion damage_;
  std::optional<Resync> resync_;
};

}  // namespace feedline::io
