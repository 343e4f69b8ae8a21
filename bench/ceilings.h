// Bare loops: what a core could do if feedline cost nothing. Each loop does one step, in at most 60 lines, on data in
// the state in which the feed meets it: the records of one read, in the cache. Each returns the number of records that
// it processed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/records/record_scanner.h"

namespace feedline::bench {

/// The records that lie completely within the first `bytes` of a file.
struct Records {
  std::vector<std::byte> file;
  std::vector<io::RecordView> views;
};
Records load(const std::string& file, size_t bytes);

/// The values that walk() finds in each record. It knows a feature by its kind and the first letter of its key.
struct Columns {
  explicit Columns(size_t rows) : values(rows), number(rows), ids(26 * rows) {}

  std::vector<const std::byte*> values;  // addresses of the values: the bytes of "d" or "image", the floats of "x"
  std::vector<int64_t> number;           // the value of "s", "label" or "y"
  std::vector<int64_t> ids;              // the 26 values of "ids"
};

/// The data of thread number `part` of `parts`: a file, the records of one read of it, and memory for batches.
struct Worker {
  Worker(const std::string& file, uint64_t records, size_t part, size_t parts, std::span<std::byte> ring);

  std::string file;
  uint64_t bytes, records;  // of the file: its size, and the number of its records
  // Where reading begins: another place for each thread, so that none finds in the cache what another has read.
  uint64_t begin;
  std::vector<std::byte> block;  // the memory that reads fill
  Records hot;
  Columns found;
  std::span<std::byte> ring;
  size_t row = 0;
  /// Returns which of `rows` rows in the ring is written next.
  size_t next_row(size_t rows) {
    if (row >= rows) row = 0;
    return row++;
  }
};

/// Copies from one half of the ring to the other as many bytes as a number of records take.
uint64_t copy_memory(Worker& worker);
/// Reads the whole file by pread from the page cache, in blocks of 512 KiB, into the same memory.
uint64_t read(Worker& worker);
/// Computes the CRC32C of each payload and each length: one crc32 stream for short records, three for long ones.
uint64_t crc(const Worker& worker);
/// Parses Examples from their wire format into columns. Looks at tags, lengths and keys; assumes no order of the
/// features; takes packed and unpacked numbers. Ends the program if it notices that a record is no Example.
uint64_t walk(std::span<const io::RecordView> records, Columns& out);

/// Writes rows of `bytes` bytes, a number, and `ids` numbers side by side into a ring of 3 batches.
template <size_t bytes, size_t ids>
uint64_t gather(Worker& worker, size_t batch);
/// Unpacks rows of 1536 bits, most significant bit first, to float32 in a ring of 3 batches.
uint64_t unpack_bits(Worker& worker, size_t batch);
/// Converts rows of bytes to float32 with one multiply-add each, in a ring of 3 batches. Writes past the cache if the
/// ring is more than twice as large as the cache.
uint64_t unpack_bytes(Worker& worker, size_t batch, size_t bytes);
/// Copies rows of bytes unchanged into a ring of 3 batches.
uint64_t copy(Worker& worker, size_t batch, size_t bytes);

/// A record to be read at random: the bytes from the index entry before it to the next entry. Reading it takes the
/// CRC32C of every record from that entry up to this one.
struct Place {
  uint64_t offset;
  uint32_t length;
  uint32_t records;  // the number of records from the entry up to this one
};
/// Draws `count` records in random order; the index has an entry for each `stride` bytes of the file.
std::vector<Place> random_places(const std::string& file, uint64_t stride, size_t count);
uint64_t read_at_random(Worker& worker, const std::vector<Place>& places);

}  // namespace feedline::bench
