// Bare loops: what a core could do if feedline cost nothing. Each does one step, in at most 60 lines, on data in the
// state in which the feed meets it: the records of one read, in the cache. Each returns how many records it went
// through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/records/record_scanner.h"

namespace feedline::bench {

/// The records that lie whole within the first `bytes` of a file.
struct Records {
  std::vector<std::byte> file;
  std::vector<io::RecordView> views;
};
Records load(const std::string& file, size_t bytes);

/// What a walk finds of each record. A feature goes by its kind and the first letter of its key.
struct Columns {
  explicit Columns(size_t rows) : values(rows), number(rows), ids(26 * rows) {}

  std::vector<const std::byte*> values;  // where they lie: the bytes of "d" or "image", the floats of "x"
  std::vector<int64_t> number;           // "s", "label" or "y"
  std::vector<int64_t> ids;              // "ids": 26 of them
};

/// What thread number `part` of `parts` works on: a file, the records of one read of it, and memory for batches.
struct Worker {
  Worker(const std::string& file, uint64_t records, size_t part, size_t parts, std::span<std::byte> ring);

  std::string file;
  uint64_t bytes, records;  // in it
  uint64_t begin;  // of reading: elsewhere for each thread, or one would find in the cache what another has read
  std::vector<std::byte> block;  // where reads go
  Records hot;
  Columns found;
  std::span<std::byte> ring;
  size_t row = 0;
  /// Which of `rows` in the ring is written next.
  size_t next_row(size_t rows) {
    if (row >= rows) row = 0;
    return row++;
  }
};

/// From one half of the ring to the other, as many bytes as some of the records take.
uint64_t copy_memory(Worker& worker);
/// pread of the whole file from the page cache, in blocks of 512 KiB into the same memory.
uint64_t read(Worker& worker);
/// CRC32C of each payload and each length: one crc32 stream for short records, three for long ones.
uint64_t crc(const Worker& worker);
/// Examples from their wire format into columns. Tags, lengths and keys are looked at; nothing is assumed of the order
/// of features; numbers are packed or not. What is no Example ends the program, if it is noticed.
uint64_t walk(std::span<const io::RecordView> records, Columns& out);

/// Rows of `bytes` bytes, a number, and `ids` numbers side by side into a ring of 3 batches.
template <size_t bytes, size_t ids>
uint64_t gather(Worker& worker, size_t batch);
/// Rows of 1536 bits, most significant first, into float32 in a ring of 3 batches.
uint64_t unpack_bits(Worker& worker, size_t batch);
/// Rows of bytes into float32, one multiply-add each, in a ring of 3 batches; past the cache where the ring is more
/// than twice as large as it.
uint64_t unpack_bytes(Worker& worker, size_t batch, size_t bytes);
/// Rows of bytes as they are into a ring of 3 batches.
uint64_t copy(Worker& worker, size_t batch, size_t bytes);

/// Records in random order: of each, the bytes from the index's entry before it to the one behind it, and the CRC32C of
/// every record from that entry up to it. `stride`: bytes of file per entry.
struct Place {
  uint64_t offset;
  uint32_t length;
  uint32_t records;  // up to it
};
std::vector<Place> random_places(const std::string& file, uint64_t stride, size_t count);
uint64_t read_at_random(Worker& worker, const std::vector<Place>& places);

}  // namespace feedline::bench
