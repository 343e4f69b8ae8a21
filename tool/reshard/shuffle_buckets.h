// Keeps the records between the two passes of a shuffle, in files in one folder. Each file (bucket) has the records of
// one range of shuffle keys (shuffle_key.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/records/record_scanner.h"

namespace feedline::tool {

std::string bucket_path(const std::string& folder, uint64_t bucket);

/// Writes each record to the bucket of its key. Every member throws Error io_error, with the file as its place. The
/// destructor removes the folder unless finish() has returned.
class BucketWriter {
 public:
  /// Creates the folder. If it exists already, removes it first, with its content. `bounds` has the first key of each
  /// bucket, in ascending order, beginning with 0. The buckets share about `buffer_bytes` of memory; each takes 4 KiB
  /// to 4 MiB of it.
  BucketWriter(std::string folder, std::vector<uint64_t> bounds, uint64_t buffer_bytes);
  ~BucketWriter();
  BucketWriter(const BucketWriter&) = delete;
  BucketWriter& operator=(const BucketWriter&) = delete;

  /// Adds a record. May be called from any thread.
  void add(uint64_t key, const io::RecordView& record);
  /// Writes what is still in memory and syncs the files. Returns the size of each file.
  std::vector<uint64_t> finish();

 private:
  struct Bucket;

  const std::string folder_;
  const std::vector<uint64_t> bounds_;
  const size_t buffer_bytes_;  // the size of each bucket's buffer
  const std::unique_ptr<Bucket[]> buckets_;
  bool finished_ = false;
};

struct BucketFile {
  std::string path;
  uint64_t bytes = 0, records = 0;  // the sizes when the file was written
};

/// Reads buckets, one after another. The reader reuses its memory, because allocating memory costs more than reading
/// into it. Not thread-safe.
class BucketReader {
 public:
  /// Verifies the payloads of a bucket again, and calls on_record with them in ascending order of key. Reads the whole
  /// bucket into memory if bucket_memory() is at most `memory` bytes, else one record at a time, with a table of 16
  /// bytes for each record. Throws Error io_error, or bad_data_crc if the file is not as it was written.
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

/// Returns the bytes of memory that BucketReader takes for a whole bucket. `framed_bytes` is the size of its records as
/// TFRecords.
constexpr uint64_t bucket_memory(uint64_t framed_bytes, uint64_t records) noexcept {
  return framed_bytes + 16 * records;
}

}  // namespace feedline::tool
