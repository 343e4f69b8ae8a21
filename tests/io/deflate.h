// Compresses bytes with zlib, for the readers of compressed files.
#pragma once

#include <zlib.h>

#include <string>
#include <string_view>

#include "support/catch.h"

namespace feedline::test {

/// Returns `text` as one deflate stream. `window_bits` chooses the frame, as zlib's deflateInit2 does: 31 is gzip, and
/// 15 is zlib.
inline std::string deflated(std::string_view text, int window_bits, int level = 6, std::string_view dictionary = {},
                            int strategy = Z_DEFAULT_STRATEGY) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, level, Z_DEFLATED, window_bits, 8, strategy) == Z_OK);
  if (!dictionary.empty())
    deflateSetDictionary(&stream, reinterpret_cast<const Bytef*>(dictionary.data()),
                         static_cast<uInt>(dictionary.size()));
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}
/// Does the same, and ends a deflate block after each `every` bytes of the text. `flush` says how: Z_SYNC_FLUSH, or
/// Z_FULL_FLUSH, after which no block refers to what came before.
inline std::string deflated_in_parts(std::string_view text, int window_bits, size_t every, int level = 6,
                                     int flush = Z_SYNC_FLUSH) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, level, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(2 * text.size() + 20 * (text.size() / every) + 1000, '\0');
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  for (size_t at = 0; at < text.size(); at += every) {
    const std::string_view part = text.substr(at, every);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
    stream.avail_in = static_cast<uInt>(part.size());
    REQUIRE(deflate(&stream, flush) == Z_OK);
  }
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}
inline std::string gzipped(std::string_view text) { return deflated(text, 31); }
inline std::string zlibbed(std::string_view text) { return deflated(text, 15); }

}  // namespace feedline::test
