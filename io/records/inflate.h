// Inflates gzip (RFC 1952) and zlib (RFC 1950) streams that arrive in pieces of any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "feedline/records.h"
#include "io/records/seek_point.h"

namespace feedline::io {

/// Inflates a gzip file with all its members, empty ones too, or a single zlib stream. It verifies the checksums and
/// sizes in the trailers. Zeros after a member are ignored. After an error, all further calls return the error. Not
/// thread-safe.
class Inflater {
 public:
  enum class Status : uint8_t {
    more,   // it needs more input (all of `in` is used up) or more room (all of `out` is filled)
    end,    // the file has ended after a complete stream; only if `last` was true
    error,  // message() says why: damaged, cut short, bytes after the end of the stream, or a different format
  };

  /// Begins at the front of a file. Precondition: `format` is gzip or zlib.
  explicit Inflater(Compression format);
  /// Begins at a seek point. The first input must be the byte of the file in which the bit `from.bit` lies. `window` is
  /// what SeekPointFound was given; it is not referenced after the constructor.
  Inflater(Compression format, const SeekPoint& from, std::span<const std::byte> window);
  ~Inflater();

  /// Looks for seek points from now on: for the first one that lies at least `spacing` bytes of the inflated stream
  /// after the last one, or after the front of the file. Precondition: nothing has been inflated yet.
  void find_seek_points(uint64_t spacing, SeekPointFound found);

  /// Inflates from `in` to `out`, and advances `in` past what was used and `out` past what was filled. `last` says that
  /// no input follows `in`. No checksum has confirmed the bytes that were written before an error, and the last 258 may
  /// be wrong: ISA-L counts those of a copy that it then refuses.
  Status run(std::span<const std::byte>& in, std::span<std::byte>& out, bool last);

  /// Returns what is wrong, for people. Empty before the first error.
  const std::string& message() const noexcept;

  /// Returns whether the output of the current member is no larger than its input. The member then consists of stored
  /// blocks (RFC 1951, section 3.2.4). Damage in stored blocks changes only the bytes at its own place, while one wrong
  /// bit in a code may change everything that follows.
  bool stored() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns the compression of a file that begins with `first_bytes`; 18 bytes suffice. The result is gzip or zlib if
/// the bytes begin with the magic number and a plausible header of that format. The result is none if a TFRecord begins
/// there (the checksum of its length is right), or if no format fits.
Compression detect_compression(std::span<const std::byte> first_bytes) noexcept;

}  // namespace feedline::io
