// Compares the inflater with zlib: the same verdict and the same bytes, however the input is cut. Two things are no damage
// for the inflater: zeros after a gzip member, and a wrong checksum of a gzip header.
// covers: io/records/inflate.cc
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "io/records/inflate.h"

namespace {

using feedline::Compression;
using feedline::io::Inflater;

constexpr size_t most_output = 1 << 16;  // deflate can expand its input a thousandfold

struct Outcome {
  std::vector<std::byte> bytes;
  bool whole = false;  // the stream ended without an error
  bool full = false;   // cut off at most_output
  bool other = false;  // zlib has refused the checksum of a header
};

Outcome by_zlib(std::span<const std::byte> data, Compression format) {
  Outcome outcome;
  outcome.bytes.resize(most_output);
  z_stream stream{};
  if (inflateInit2(&stream, format == Compression::gzip ? 31 : 15) != Z_OK) std::abort();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(outcome.bytes.data());
  stream.avail_out = most_output;
  outcome.whole = data.empty();
  while (stream.avail_in > 0) {
    const int result = inflate(&stream, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      for (; format == Compression::gzip && stream.avail_in > 0 && *stream.next_in == 0; stream.avail_in--)
        stream.next_in++;
      outcome.whole = stream.avail_in == 0;
      if (outcome.whole || format == Compression::zlib) break;
      inflateReset(&stream);
      continue;
    }
    outcome.full = stream.avail_out == 0;
    outcome.other = stream.msg && std::strcmp(stream.msg, "header crc mismatch") == 0;
    break;
  }
  outcome.bytes.resize(most_output - stream.avail_out);
  inflateEnd(&stream);
  return outcome;
}

Outcome by_inflater(std::span<const std::byte> data, Compression format, size_t in_step, size_t out_step) {
  Outcome outcome;
  outcome.bytes.resize(most_output);
  std::span<std::byte> left(outcome.bytes);
  Inflater inflater(format);
  std::span<const std::byte> in;
  for (;;) {
    if (in.empty()) {
      in = data.first(std::min(in_step, data.size()));
      data = data.subspan(in.size());
    }
    std::span<std::byte> out = left.first(std::min(out_step, left.size()));
    const size_t room = out.size();
    const auto status = inflater.run(in, out, data.empty());
    left = left.subspan(room - out.size());
    if (status == Inflater::Status::more) {
      if (!in.empty() && !out.empty()) std::abort();  // it used up neither its input nor its output
      if (!left.empty()) continue;
      outcome.full = true;
    } else if (status == Inflater::Status::error) {
      if (inflater.message().empty()) std::abort();
    } else {
      outcome.whole = true;
    }
    break;
  }
  outcome.bytes.resize(most_output - left.size());
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const Compression format = data[0] & 1 ? Compression::gzip : Compression::zlib;
  const size_t in_step = data[0] & 2 ? SIZE_MAX : 1 + data[1] % 64;
  const size_t out_step = data[0] & 4 ? SIZE_MAX : 1 + (data[1] >> 2) * 16;
  const auto input = std::as_bytes(std::span(data + 2, size - 2));
  static_cast<void>(feedline::io::detect_compression(input));

  const Outcome theirs = by_zlib(input, format), ours = by_inflater(input, format, in_step, out_step);
  if (theirs.other) return 0;
  if (theirs.full || ours.full) {
    if (theirs.full && ours.full && ours.bytes != theirs.bytes) std::abort();
    return 0;
  }
  if (ours.whole != theirs.whole) std::abort();
  // Before an error, either may have delivered more bytes than the other; the common part must be equal.
  const size_t common = std::min(ours.bytes.size(), theirs.bytes.size());
  if (common > 0 && std::memcmp(ours.bytes.data(), theirs.bytes.data(), common) != 0) std::abort();
  if (ours.whole && ours.bytes != theirs.bytes) std::abort();
  return 0;
}
