// One file -> its verified records, many at a time, and the damage between them. What the reader of records.h and the
// counting pass have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

/// Not thread-safe. Memory: a block or the longest record, two blocks of compressed input, and Resync's windows once
/// there is damage. No allocation per record; a stated length is bounded by record_limit and the file, and in a
/// compressed stream memory for it grows only as its bytes arrive.
class RecordStream {
 public:
  enum class Found : uint8_t {
    records,  // records() has at least one
    damage,   // damage() says what and where; records go on behind it
    end,      // so say all further calls
  };

  /// Throws Error io_error, as next() does.
  RecordStream(std::string file, Compression compression, uint64_t record_limit);
  RecordStream(std::shared_ptr<const InputFile> file, Compression compression, uint64_t record_limit);

  /// A chain of a plain file: where no good record follows it says end, and offset() is where. Begins at 0.
  struct Chain {};
  RecordStream(std::shared_ptr<const InputFile> file, Chain, uint64_t record_limit);

  Found next();

  /// In a plain file: what comes next begins at `offset`, with so many good records before it.
  void go_on_at(uint64_t offset, uint64_t number);

  /// They lie one after another in the stream, the first at offset(). Valid until the next call or go_on_at().
  std::span<const RecordView> records() const noexcept { return {views_.data(), count_}; }
  uint64_t offset() const noexcept { return offset_; }
  /// Good records before them.
  uint64_t number() const noexcept { return number_; }
  const BadRegion& damage() const noexcept { return damage_; }

  Compression compression() const noexcept { return compression_; }
  /// Of the file.
  uint64_t position() const noexcept { return file_position_; }
  uint64_t size() const noexcept { return file_->size(); }
  /// Of the (inflated) stream, once next() said end.
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

  const std::shared_ptr<const InputFile> file_;
  const uint64_t limit_;
  const bool chain_;
  Compression compression_ = Compression::none;
  uint64_t file_position_ = 0;

  // What was read and not yet scanned is buffer_[begin_, end_).
  std::unique_ptr<std::byte[]> buffer_;
  size_t capacity_ = 0, begin_ = 0, end_ = 0;
  uint64_t buffer_offset_ = 0;  // of buffer_[0] in the stream
  bool source_ended_ = false;

  std::optional<Inflater> inflater_;
  std::unique_ptr<std::byte[]> input_;
  std::span<const std::byte> input_left_;
  bool inflate_failed_ = false;

  std::array<RecordView, 512> views_;
  size_t count_ = 0;
  uint64_t offset_ = 0, number_ = 0;
  BadRegion damage_;
  std::optional<Resync> resync_;
};

}  // namespace feedline::io
