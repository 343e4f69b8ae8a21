// Ceilings: bare loops that show what a core could do if feedline cost nothing. Each loop does one step of the feed, in
// at most 60 lines. Its data is in the state that it has in a feed: the records of one read, in the cache. Each loop
// returns the number of records that it processed.
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

/// The values that walk() finds in each record. walk() knows a feature by its kind and the first letter of its key.
struct Columns {
  explicit Columns(size_t rows) : values(rows), number(rows), ids(26 * rows) {}

  std::vector<const std::byte*> values;  // addresses of the values: the bytes of "d" or "image", the floats of "x"
  std::vector<int64_t> number;           // the value of "s", "label" or "y"
  std::vector<int64_t> ids;              // the 26 values of "ids"
};

/// The data of thread number `part` of `parts`: a file, the records of one read of the file, and memory for batches.
struct Worker {
  Worker(const std::string& file, uint64_t records, size_t part, size_t parts, std::span<std::byte> ring);

  std::string file;
  uint64_t bytes, records;  // of the file: its size, and the number of its records
  // Where reading begins: another place for each thread, so that none finds in the cache what another has read.
  uint64_t begin;
  std::vector<std::byte> block;  // the memory that reads fill
  Records hot;                   // the records of one read
  Columns found;                 // the values in these records
  std::span<std::byte> ring;     // a ring buffer of batches
  size_t row = 0;                // the row of the ring that is written next
  /// Returns the row to write, of `rows` rows in the ring, and moves on to the next.
  size_t next_row(size_t rows) {
    if (row >= rows) row = 0;
    return row++;
  }
};

/// Copies one half of the ring to the other by one memcpy(), as many bytes as whole records of average size take.
uint64_t copy_memory(Worker& worker);
/// Reads the whole file by pread from the page cache, in blocks of 512 KiB, each into the same memory.
uint64_t read(Worker& worker);
/// Computes the CRC32C of each payload and each length by crc32 instructions: one chain for short records, three
/// independent chains for long ones.
uint64_t crc(const Worker& worker);
/// Parses Examples from their wire format into columns. Looks at tags, lengths and keys. The features may have any
/// order, and numbers may be packed or not. Aborts the program if it notices that a record is no Example.
uint64_t walk(std::span<const io::RecordView> records, Columns& out);

/// Writes three columns into a ring of 3 batches: of `bytes` bytes, of a number, and of `ids` numbers a row.
template <size_t bytes, size_t ids>
uint64_t gather(Worker& worker, size_t batch);
/// Unpacks rows of 1536 bits, most significant bit first, to float32 into a ring of 3 batches.
uint64_t unpack_bits(Worker& worker, size_t batch);
/// Converts rows of bytes to float32 with one multiply-add each, into a ring of 3 batches. Uses streaming stores, which
/// bypass the cache, if the ring is more than twice as large as the last-level cache.
uint64_t unpack_bytes(Worker& worker, size_t batch, size_t bytes);
/// Copies rows of bytes unchanged into a ring of 3 batches. Uses streaming stores if the ring is larger than the
/// last-level cache.
uint64_t copy(Worker& worker, size_t batch, size_t bytes);

/// What must be read for one random record: the bytes from the index entry before the record to the next entry. The
/// CRC32C of every record from the entry up to this record must be computed.
struct Place {
  uint64_t offset;
  uint32_t length;
  uint32_t records;  // the number of records from the entry up to this record
};
/// Draws `count` records at random, with repetition. Assumes an index with an entry for each `stride` bytes of the
/// file.
std::vector<Place> random_places(const std::string& file, uint64_t stride, size_t count);
/// Reads each place by pread and computes its CRC32Cs.
uint64_t read_at_random(Worker& worker, const std::vector<Place>& places);

}  // namespace feedline::bench
