// Records between the two passes of a shuffle: files in a folder, each with the records of one range of keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/records/record_scanner.h"

namespace feedline::cli {

std::string bucket_path(const std::string& folder, uint64_t bucket);

/// Deals records to buckets. Without finish() the folder is gone when this is. Every member throws Error io_error,
/// naming the file.
class BucketWriter {
 public:
  /// bounds: the first key of each bucket, ascending, the first of them 0. Makes the folder; what was in it is gone.
  /// Memory: buffer_bytes.
  BucketWriter(std::string folder, std::vector<uint64_t> bounds, uint64_t buffer_bytes);
  ~BucketWriter();
  BucketWriter(const BucketWriter&) = delete;
  BucketWriter& operator=(const BucketWriter&) = delete;

  /// From any thread.
  void add(uint64_t key, const io::RecordView& record);
  /// Writes what is left and syncs. The size of each file.
  std::vector<uint64_t> finish();

 private:
  struct Bucket;
  void append(Bucket& bucket, std::span<const std::byte> bytes);

  const std::string folder_;
  const std::vector<uint64_t> bounds_;
  const size_t buffer_bytes_;  // of a bucket
  const std::unique_ptr<Bucket[]> buckets_;
  bool finished_ = false;
};

struct BucketFile {
  std::string path;
  uint64_t bytes = 0, records = 0;  // as they were written
};

/// Reads buckets, one behind another, into memory that it keeps: fresh memory costs more than what is read into it. Not
/// thread-safe.
class BucketReader {
 public:
  /// The payloads of a bucket, ascending by key, checksums verified again. In memory as a whole; where that takes more
  /// than `memory` bytes (16 for each record included), each record is read where it lies. Throws Error io_error, and
  /// bad_data_crc where the file is not as it was written.
  void read(const BucketFile& bucket, uint64_t memory,
            const std::function<void(std::span<const std::byte> payload)>& on_record);

 private:
  struct Entry {
    uint64_t key, offset;
  };
  std::unique_ptr<std::byte[]> buffer_;
  size_t capacity_ = 0;
  std::vector<Entry> entries_;
  std::vector<std::byte> record_;
};

/// What BucketReader takes for the whole of a bucket: `framed_bytes` are those of the records as TFRecords.
constexpr uint64_t bucket_memory(uint64_t framed_bytes, uint64_t records) noexcept {
  return framed_bytes + 16 * records;
}

}  // namespace feedline::cli
