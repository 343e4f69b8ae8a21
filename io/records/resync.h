// Where the records go on behind damage.
//
// A record may contain TFRecords: a valid record found behind damage need not belong to the file. What is accepted
// is proven, up to accidents of a 32-bit checksum:
//
// 1. One wrong bit: a header whose checksum is wrong is tried with the length it states, then with each of its 64
//    one-bit corrections, against the payload's checksum; a payload whose checksum is wrong, up to 1 MiB, with each
//    one-bit correction of it and of the checksum. What fits says where the record ends.
// 2. Else a place is accepted when the chain of records that begins there reaches the end of the file, or passes
//    place + record_limit + 16: a record that enclosed the place would have to end before, and the chain of records
//    inside a record ends with its payload, 4 bytes before the end of the record.
//    First tried is the place that a good header's length says, then every later one at which a valid record begins.
// 3. A chain goes on over a damaged record if rule 1 finds its end, or if its length's checksum holds and no chain of
//    valid records that begins inside it reaches or crosses its end (such a chain would say that the length lies). Not
//    so a chain that begins inside a record with a good header: there it is probably one of records inside a record.
//
// So between two damages of more than a bit that lie closer together than record_limit, nothing can be told from
// records inside a record, and nothing is accepted. A record that by its header ends behind the file ends the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>

namespace feedline::io {

/// For one plain file. Not thread-safe.
class Resync {
 public:
  /// Fills the whole span, or throws.
  using ReadAt = std::function<void(uint64_t offset, std::span<std::byte> into)>;

  /// Memory: two windows of 256 KiB, and a few MiB at most in the course of a search.
  Resync(ReadAt read, uint64_t file_size, uint64_t record_limit);
  ~Resync();

  /// `damage`: where a record of the file should begin and no good one does. The next place at which one is proven to
  /// begin, or the file's size. A place at which a damaged record is proven to begin may be returned as well.
  ///
  /// Every byte is looked at once for headers and once for chains; candidates whose chains fail cost at most 16 times
  /// the distance searched, and 2 (record_limit + 16) + 16 MiB. Beyond that, candidates are passed over.
  uint64_t after(uint64_t damage);

  /// A place that looks as if a record began there: a good header of one that fits. Whether the payload's checksum
  /// holds, and whether the place is not inside a record, is for the caller to find out.
  struct Candidate {
    uint64_t offset, size;  // of the whole record
  };
  /// The first in [from, to).
  std::optional<Candidate> candidate(uint64_t from, uint64_t to);

  /// Rule 1 alone: where the record at `damage` ends, whose header's checksum is wrong, if a length fits.
  std::optional<uint64_t> end_of_record(uint64_t damage);

 private:
  class Window;
  struct Header {
    uint64_t length;
    bool good;  // its checksum holds
  };
  struct Chain {
    uint64_t from = 0, at = 0;  // walked so far
    bool broken = true;
    bool strict = false;  // rule 3 does not apply
  };

  std::optional<Header> header(Window& window, uint64_t at);
  bool fits(uint64_t at, uint64_t length) const;
  uint32_t payload_crc(uint64_t at, uint64_t length);
  uint32_t stored_crc(uint64_t at, uint64_t length);
  std::optional<uint64_t> valid_end(Window& window, uint64_t at);
  bool one_bit_off(uint64_t at, uint64_t length, uint32_t crc);
  std::optional<uint64_t> corrected_end(uint64_t at, uint64_t stated, bool header_must_follow);
  bool crossed(uint64_t begin, uint64_t end);
  std::optional<uint64_t> step(uint64_t at);
  uint64_t find_header(uint64_t from, uint64_t to);
  bool proven(uint64_t place);
  uint64_t search(uint64_t from, uint64_t inside_until);

  const uint64_t size_, limit_;
  const std::unique_ptr<Window> search_, chains_;
  Chain chain_;                          // the one accepted last, or being tried
  uint64_t searched_from_ = UINT64_MAX;  // the last search, and what it found
  uint64_t found_ = 0;
  std::unordered_set<uint64_t> failed_;  // places from which chains are known to fail
  uint64_t work_ = 0;                    // bytes of candidates' payloads checked in this search
};

}  // namespace feedline::io
