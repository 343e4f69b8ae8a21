// gzip (RFC 1952) and zlib (RFC 1950) streams: bytes in, bytes out, any cut.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "feedline/records.h"

namespace feedline::io {

/// All members of a gzip file, also empty ones, one after another; zlib: one stream. Checksums and sizes of the
/// trailers are verified. Not thread-safe. After an error it stays there.
class Inflater {
 public:
  enum class Status : uint8_t {
    more,   // give more input (all of it is used up) or more output (all of it is filled)
    end,    // the file ended behind a complete stream; only after `last`
    error,  // message() says why: damaged, cut short, bytes behind the stream, another format
  };

  /// gzip or zlib.
  explicit Inflater(Compression format);
  ~Inflater();
  Inflater(Inflater&&) noexcept;
  Inflater& operator=(Inflater&&) noexcept;

  /// Advances `in` past what was used and `out` past what was filled. `last`: no input follows `in`.
  /// Bytes put out before an error are those the stream really holds as far as can be told.
  Status run(std::span<const std::byte>& in, std::span<std::byte>& out, bool last);

  const std::string& message() const noexcept;

  /// Whether this member came out no larger than it went in: stored blocks (RFC 1951, section 3.2.4), in which damage
  /// stays where it is, while one wrong bit of a code may change all that follows.
  bool stored() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What the first bytes of a file say (18 of them suffice): gzip or zlib by their magic and a plausible header; none
/// when they begin a TFRecord (its length checksum holds) or nothing else fits.
Compression detect_compression(std::span<const std::byte> first_bytes) noexcept;

}  // namespace feedline::io
