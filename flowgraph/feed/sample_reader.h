// Reads single samples of a file, for what looks at some of them before the feed begins.
#pragma once

#include <cstdint>
#include <optional>

#include "flowgraph/data/data_set.h"
#include "io/records/record_stream.h"

namespace feedline::flow {

/// Reads records of one file, in ascending order. Goes to a record by the index, or reads a compressed file, or one
/// that is not counted, from its beginning.
class SampleReader {
 public:
  /// Opens the file. Keeps references to the arguments. Throws Error io_error if it cannot be opened or read; so does
  /// find().
  SampleReader(const DataSet& data, const SourceSpec& source, const DataFile& file);

  enum class Found : uint8_t { record, damage, end };
  /// Goes to the record with this number in the file, which must be larger than that of the call before. Damage is only
  /// found if the data was not counted and `stops_at_damage` is true; otherwise it is passed over.
  Found find(uint64_t number, bool stops_at_damage);

  /// The record that was found, until the next call of find(); where it begins in the file; and its number.
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
