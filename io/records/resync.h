// Finds the place after damage from which the records of a file continue.
//
// The payload of a record may itself contain TFRecords, so a valid record that is found after damage need not belong to
// the file. A place is accepted only if these rules prove, up to accidents of a 32-bit checksum, that a record of the
// file begins there:
//
// 1. One wrong bit. If the checksum of a header is wrong, the length that the header states and each of its 64 one-bit
//    corrections are tried against the checksum of the payload. If the checksum of a payload is wrong, each one-bit
//    correction of the checksum is tried and, for payloads of up to 1 MiB, each one-bit correction of the payload. If
//    one of these fits, it shows where the record ends.
// 2. Otherwise a place is accepted if the chain of records that begins there reaches the end of the file, or reaches
//    place + record_limit + 16. A record that enclosed the place would end before that, and a chain of records inside
//    the payload of a record ends with the payload, 4 bytes before the end of the record.
//    The first place that is tried is the end of the damaged record, if its header is good. The next ones are all later
//    places at which a valid record begins.
// 3. A chain continues over a damaged record if rule 1 finds the end of that record. It also continues if the checksum
//    of the record's length is right, and no chain of valid records that begins inside the record reaches or crosses
//    the end of the record. Such a chain would show that the length is wrong. This rule does not apply to a chain that
//    begins inside a record with a good header, because that is probably a chain of records inside a record.
//
// It follows that nothing is accepted between two damages of more than one bit that lie closer together than
// record_limit, because records there cannot be distinguished from records inside a record. If the header of a damaged
// record is good and says that the record ends after the end of the file, nothing after it is accepted, either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>

namespace feedline::io {

/// Searches one file that is not compressed. Not thread-safe. Every member throws what `read` throws.
class Resync {
 public:
  /// Fills all of `into` with the bytes of the file from `offset` on, or throws.
  using ReadAt = std::function<void(uint64_t offset, std::span<std::byte> into)>;

  /// Makes an object that reads the file by `read`. Memory: two windows of 256 KiB, and at most some 12 MiB during a
  /// search.
  Resync(ReadAt read, uint64_t file_size, uint64_t record_limit);
  ~Resync();

  /// Returns the next place after `damage` at which a record is proven to begin, or the size of the file if there is
  /// none. The record at the returned place may itself be damaged. `damage` is a place at which a record of the file
  /// should begin, but no good record does.
  ///
  /// The search looks at every byte once for headers and once for chains. Candidates whose chains fail cost further
  /// reading: at most 16 times the distance searched, plus 2 (record_limit + 16) + 16 MiB. After that, candidates are
  /// skipped.
  uint64_t after(uint64_t damage);

  /// A place at which a record seems to begin: it has a good header, and the record fits into the file and into
  /// record_limit. The caller must find out whether the checksum of the payload is right, and whether the place lies
  /// inside another record.
  struct Candidate {
    uint64_t offset, size;  // of the whole record, in bytes
  };
  /// Returns the first place in the bytes [from, to) at which a record may begin, or nothing if there is none.
  std::optional<Candidate> candidate(uint64_t from, uint64_t to);

  /// Applies rule 1 to the header of the record that begins at the offset `damage`, and no other rule. Returns the
  /// offset of the end of this record. Returns nothing if the header's checksum is right, or if the payload's checksum
  /// fits none of the lengths that rule 1 tries.
  std::optional<uint64_t> end_of_record(uint64_t damage);

 private:
  class Window;
  struct Header {
    uint64_t length;
    bool good;  // whether the checksum of the length is right
  };
  struct Chain {
    uint64_t from = 0, at = 0;  // the chain has been followed over [from, at)
    bool broken = true;
    bool strict = false;  // whether damage breaks the chain, because rule 3 does not apply
  };

  std::optional<Header> header(uint64_t at);
  bool fits(uint64_t at, uint64_t length) const;
  uint32_t extend_crc(uint32_t crc, uint64_t from, uint64_t to);
  uint32_t payload_crc(uint64_t at, uint64_t length);
  uint32_t stored_crc(uint64_t at, uint64_t length);
  std::optional<uint64_t> valid_end(uint64_t at);
  bool one_bit_off(uint64_t at, uint64_t length, uint32_t crc);
  std::optional<uint64_t> corrected_end(uint64_t at, uint64_t stated, bool header_must_follow);
  bool crossed(uint64_t begin, uint64_t end);
  std::optional<uint64_t> step(uint64_t at);
  uint64_t find_header(uint64_t from, uint64_t to);
  bool proven(uint64_t place);
  uint64_t search(uint64_t from, uint64_t inside_until);

  const uint64_t size_, limit_;
  const std::unique_ptr<Window> search_, chains_;
  Chain chain_;                          // the chain that was accepted last, or that is being tried
  uint64_t searched_from_ = UINT64_MAX;  // where the last search began
  uint64_t found_ = 0;                   // what the last search returned
  std::unordered_set<uint64_t> failed_;  // places from which chains are known to fail
  uint64_t work_ = 0;                    // bytes of candidates' payloads that this search has checked
};

}  // namespace feedline::io
