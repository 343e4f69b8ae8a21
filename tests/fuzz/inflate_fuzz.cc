// Compares the inflater with zlib: the same verdict and the same bytes, however the input is cut. Two things are no
// damage for the inflater: zeros after a gzip member, and a wrong checksum of a gzip header. From each seek point of
// the stream the inflater must say the same of the rest. From a wrong one it may say anything.
// covers: io/records/inflate.cc io/records/seek_point_finder.h
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
#include "tests/fuzz/draw.h"

namespace {

using feedline::Compression;
using feedline::io::Inflater;
using feedline::io::SeekPoint;
using feedline::test::ExactBlock;

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

Outcome by_inflater(Inflater& inflater, std::span<const std::byte> data, size_t in_step, size_t out_step) {
  Outcome outcome;
  outcome.bytes.resize(most_output);
  std::span<std::byte> left(outcome.bytes);
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

void require(bool holds) {
  if (!holds) std::abort();
}

void must_agree(const Outcome& ours, const Outcome& theirs) {
  if (theirs.full || ours.full) {
    if (theirs.full && ours.full) require(ours.bytes == theirs.bytes);
    return;
  }
  require(ours.whole == theirs.whole);
  // Before an error, either may have delivered more bytes. What both have must be equal, but for what ISA-L counts of a
  // copy that it then refuses.
  constexpr size_t longest_copy = 258;
  const size_t both = std::min(ours.bytes.size(), theirs.bytes.size()), common = both - std::min(both, longest_copy);
  require(common == 0 || std::memcmp(ours.bytes.data(), theirs.bytes.data(), common) == 0);
  if (ours.whole) require(ours.bytes == theirs.bytes);
}

struct Place {
  SeekPoint point;
  std::string window;
};

Outcome from_place(const Place& place, std::span<const std::byte> input, Compression format, size_t in_step,
                   size_t out_step) {
  const ExactBlock window(place.window);
  Inflater inflater(format, place.point, window.span());
  return by_inflater(inflater, input.subspan(std::min<size_t>(input.size(), place.point.bit / 8)), in_step, out_step);
}

// Inflates from seek points, and from wrong ones. The bits of `wrong` choose what is wrong, and `by` how much, and how
// far the points lie apart.
void check_seek_points(std::span<const std::byte> input, Compression format, size_t in_step, size_t out_step,
                       uint8_t wrong, uint8_t by) {
  std::vector<Place> places;
  Inflater finding(format);
  finding.find_seek_points(1 + uint64_t{by} * by, [&](const SeekPoint& point, std::span<const std::byte> window) {
    places.push_back({point, {reinterpret_cast<const char*>(window.data()), window.size()}});
    return size_t{0};
  });
  const Outcome all = by_inflater(finding, input, in_step, out_step);
  Inflater plain(format);
  must_agree(all, by_inflater(plain, input, in_step, out_step));
  if (places.size() > 12) places.resize(12);
  for (Place& place : places) {
    const SeekPoint& point = place.point;
    require(point.offset <= all.bytes.size() && point.bit < 8 * input.size() && point.member_size <= point.offset);
    require(place.window.size() == std::min<uint64_t>(feedline::io::deflate_window, point.member_size));
    const std::byte* const end = all.bytes.data() + point.offset;
    require(place.window.empty() ||
            std::memcmp(end - place.window.size(), place.window.data(), place.window.size()) == 0);
    Outcome rest = from_place(place, input, format, in_step, out_step);
    if (rest.full) continue;
    rest.bytes.insert(rest.bytes.begin(), all.bytes.begin(), all.bytes.begin() + static_cast<int64_t>(point.offset));
    if (!all.full) must_agree(rest, all);
    if (wrong & 1) place.window.resize(place.window.size() * by / 256);
    if (wrong & 2) place.point.bit += by;
    if (wrong & 4)
      for (size_t at = by; at < place.window.size(); at += 1 + by) place.window[at] ^= static_cast<char>(1 + by);
    if (wrong & 8) place.point.check ^= by;
    if (wrong & 16) place.point.member_size += by;
    from_place(place, input, format, in_step, out_step);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const Compression format = data[0] & 1 ? Compression::gzip : Compression::zlib;
  const size_t in_step = data[0] & 2 ? SIZE_MAX : 1 + data[1] % 64;
  const size_t out_step = data[0] & 4 ? SIZE_MAX : 1 + (data[1] >> 2) * 16;
  const auto input = std::as_bytes(std::span(data + 2, size - 2));
  static_cast<void>(feedline::io::detect_compression(input));

  const Outcome theirs = by_zlib(input, format);
  Inflater inflater(format);
  const Outcome ours = by_inflater(inflater, input, in_step, out_step);
  if (!theirs.other) must_agree(ours, theirs);
  check_seek_points(input, format, in_step, out_step, data[0] >> 3, data[1]);
  return 0;
}
