// Bare loops: what one core could do if feedline cost nothing. Each does one step, in at most 60 lines, on data in the
// state in which the feed meets it: the records of one read, in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace feedline::bench {

/// The records that lie whole within the first `bytes` of a file.
struct Frames {
  struct Frame {
    uint64_t offset;  // of the payload
    uint32_t size;
  };
  std::vector<std::byte> file;
  std::vector<Frame> frames;
};
Frames load(const char* file, size_t bytes);

/// pread of the whole file from the page cache, in blocks of `block` bytes into the same memory.
void read(const char* file, size_t block);
/// Records in random order: of each, the bytes from the index's entry before it to the one behind it, and the CRC32C of
/// every record from that entry up to it. `stride`: bytes of file per entry.
struct Place {
  uint64_t offset;
  uint32_t length;
  uint32_t records;  // up to it
};
std::vector<Place> random_places(const char* file, uint64_t stride, size_t count);
void read_at_random(const char* file, const std::vector<Place>& places);
/// CRC32C of each payload and each length: one crc32 stream for short records, three for long ones.
uint64_t crc(const Frames& data);
/// The chess Example from its wire format into columns: `d` as a pointer, `s` as a number. Tags, lengths and keys are
/// looked at; nothing is assumed of their order.
uint64_t walk(const Frames& data, std::vector<const std::byte*>& d, std::vector<int64_t>& s);
/// Rows of 194 bytes and 8 bytes side by side into a ring of 3 batches.
void gather(const std::vector<const std::byte*>& d, const std::vector<int64_t>& s, size_t batch, std::byte* ring);
/// Rows of bits, most significant first, into 1536 float32 each, in a ring of 3 batches.
void unpack(const std::vector<const std::byte*>& d, size_t batch, std::byte* ring);

}  // namespace feedline::bench
