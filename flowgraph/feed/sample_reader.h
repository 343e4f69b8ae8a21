// Reads single samples of a file, for code that looks at some samples before the feed begins.
#pragma once

#include <cstdint>
#include <optional>

#include "flowgraph/data/data_set.h"
#include "io/records/record_stream.h"

namespace feedline::flow {

/// Reads records of one file, in ascending order. Uses the file's index to skip most of what lies before a record. A
/// file that is compressed, or was not counted, is read from its beginning instead.
class SampleReader {
 public:
  /// Opens the file. Keeps references to the arguments. Throws Error io_error if it cannot be opened or read; so does
  /// find().
  SampleReader(const DataSet& data, const SourceSpec& source, const DataFile& file);

  enum class Found : uint8_t { record, damage, end };
  /// Goes to the record with this number in the file, which must be larger than the number of the previous call.
  /// Returns Found::damage only if the data was not counted and `stops_at_damage` is true; otherwise passes damaged
  /// bytes over.
  Found find(uint64_t number, bool stops_at_damage);

  /// Return the record that was found, which is valid until the next call of find(); the offset in the file at which it
  /// begins; and its number.
  const io::RecordView& record() const noexcept { return stream_.records()[number_ - stream_.number()]; }
  uint64_t offset() const noexcept {
    return stream_.offset() + static_cast<uint64_t>(record().data - stream_.records().front().data);
  }
  uint64_t number() const noexcept { return number_; }
  const io::BadRegion& damage() const noexcept { return stream_.damage(); }
  /// Returns how many bytes of the file were read.
  uint64_t bytes_read() const noexcept { return bytes_read_; }

 private:
  const DataSet& data_;
  const DataFile& file_;
  io::RecordStream stream_;
  uint64_t number_ = 0, bytes_read_ = 0;
};

}  // namespace feedline::flow
