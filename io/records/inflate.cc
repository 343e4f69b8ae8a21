// This file parses the wrappers (gzip members, the zlib stream) itself, byte by byte as they arrive. ISA-L inflates the
// deflate data inside them.
//
// ISA-L could check wrappers, too. But it does not refuse reserved header flags, and it does not say which bytes after
// the end of a member it has taken. A preset dictionary or a second member must be handled from outside in any case.
#include "io/records/inflate.h"

#include <fmt/format.h>
#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/invariant.h"
#include "base/load.h"
#include "io/records/crc32c.h"
#include "io/records/seek_point_finder.h"

namespace feedline::io {
namespace {

// The flags of a gzip header (RFC 1952, section 2.3.1).
constexpr uint8_t gzip_header_crc = 2, gzip_extra = 4, gzip_name = 8, gzip_comment = 16, gzip_reserved = 0xe0;

const unsigned char* chars(const std::byte* p) noexcept { return reinterpret_cast<const unsigned char*>(p); }

// Returns whether these are the first two bytes of a zlib stream (RFC 1950, section 2.2): deflate with a window of at
// most 32 KiB, and right check bits. The dictionary flag is ignored.
bool is_zlib_header(uint8_t cmf, uint8_t flags) noexcept {
  return (cmf & 15) == 8 && cmf >> 4 <= 7 && (cmf * 256 + flags) % 31 == 0;
}
constexpr uint8_t zlib_dictionary = 32;

// Returns whether a deflate stream (RFC 1951, section 3.2) can begin with `bytes`, however few they are.
bool may_begin_deflate(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return true;
  const unsigned char* b = chars(bytes.data());
  switch (b[0] >> 1 & 3) {
    case 0:
      return bytes.size() < 5 || ((b[1] ^ b[3]) == 0xff && (b[2] ^ b[4]) == 0xff);
    case 1:
      return true;
    case 2:
      return b[0] >> 3 <= 29 && (bytes.size() < 2 || (b[1] & 31) <= 29);
    default:
      return false;
  }
}

}  // namespace

struct Inflater::Impl {
  enum class State : uint8_t {
    between,  // before a member or stream, or after the last one
    header,   // in the fixed part of a gzip header
    extra_size,
    extra,
    name,
    comment,
    header_crc,
    zlib_flags,
    body,
    trailer,
    failed,
  };

  explicit Impl(Compression wanted) : gzip(wanted == Compression::gzip) {}

  Impl(Compression wanted, const SeekPoint& from, std::span<const std::byte> window) : Impl(wanted) {
    begin_body();
    // ISA-L copies the window, and does not write through this pointer.
    isal_inflate_set_dict(&inflate, const_cast<unsigned char*>(chars(window.data())),
                          static_cast<uint32_t>(window.size()));
    size = from.member_size;
    check = static_cast<uint32_t>(from.check);
    passed_bits = static_cast<int>(from.bit % 8);
  }

  const bool gzip;
  State state = State::between;
  bool seen_stream = false;
  std::string message;

  uint8_t fixed[10] = {};    // the wrapper field that is being collected
  size_t have = 0;           // how many bytes of that field have arrived
  uint8_t flags = 0;         // the flags of the gzip header
  uint16_t extra_left = 0;   // bytes of the gzip header's extra field that are still to come
  uint32_t check = 0;        // CRC32 or Adler32 of this member's output so far
  uint64_t size = 0;         // bytes of this member's output so far
  uint64_t taken = 0;        // bytes of input from which this output was made
  uint64_t input = 0;        // bytes of input so far
  int passed_bits = 0;       // bits of the next byte of input that lie before the seek point
  uint8_t returned[8] = {};  // bytes after the end of the deflate data that ISA-L has taken
  size_t returned_count = 0, returned_used = 0;
  inflate_state inflate;
  std::optional<SeekPointFinder> finder;

  Status fail(std::string why) {
    message = std::move(why);
    state = State::failed;
    return Status::error;
  }

  // Does what fail() does, and returns false.
  bool refuse(std::string why) {
    fail(std::move(why));
    return false;
  }

  // Sets `byte` to the next byte of the wrapper. Returns false if no further byte has arrived yet.
  bool take(std::span<const std::byte>& in, uint8_t& byte) noexcept {
    if (returned_used < returned_count) {
      byte = returned[returned_used++];
      return true;
    }
    if (in.empty()) return false;
    byte = std::to_integer<uint8_t>(in.front());
    in = in.subspan(1);
    input++;
    return true;
  }

  void begin_body() noexcept {
    isal_inflate_init(&inflate);
    inflate.crc_flag = ISAL_DEFLATE;
    check = gzip ? 0 : 1;
    size = taken = 0;
    state = State::body;
  }

  // Goes to the next optional field of the gzip header after the one with the flag `before`, or to the body. The fields
  // come in this order, and each exists if its flag is set.
  void next_field(uint8_t before) noexcept {
    have = 0;
    if (before < gzip_extra && (flags & gzip_extra))
      state = State::extra_size;
    else if (before < gzip_name && (flags & gzip_name))
      state = State::name;
    else if (before < gzip_comment && (flags & gzip_comment))
      state = State::comment;
    else if (flags & gzip_header_crc)
      state = State::header_crc;
    else
      begin_body();
  }

  // Takes one byte of a header or trailer. Returns false if it is wrong; `message` then says why.
  bool wrapper_byte(uint8_t byte) {
    switch (state) {
      case State::between:
        if (!gzip) {
          if (seen_stream)
            return refuse("the file has bytes after the end of its zlib stream; a zlib file has one stream");
          fixed[0] = byte;
          state = State::zlib_flags;
          return true;
        }
        if (seen_stream && byte == 0) return true;  // padding to a whole block of a disk or tape, as gzip(1) allows it
        have = 0;
        state = State::header;
        [[fallthrough]];
      case State::header:
        fixed[have++] = byte;
        if (have <= 2 && fixed[have - 1] != (have == 1 ? 0x1f : 0x8b))
          return refuse(seen_stream
                            ? "the end of the gzip stream is followed by bytes that do not begin another gzip member"
                            : "this is not a gzip file: it does not begin with the bytes 1f 8b");
        if (have == 3 && byte != 8)
          return refuse(
              fmt::format("the gzip header has the compression method {}; only 8, deflate, can be read", byte));
        if (have == 4 && (byte & gzip_reserved))
          return refuse(fmt::format("the gzip header has the flags {:02x}, of which {:02x} are reserved", byte,
                                    byte & gzip_reserved));
        if (have == 10) {
          flags = fixed[3];
          next_field(0);
        }
        return true;
      case State::extra_size:
        fixed[have++] = byte;
        if (have == 2) {
          extra_left = static_cast<uint16_t>(fixed[0] | fixed[1] << 8);
          if (extra_left > 0)
            state = State::extra;
          else
            next_field(gzip_extra);
        }
        return true;
      case State::extra:
        if (--extra_left == 0) next_field(gzip_extra);
        return true;
      case State::name:
        if (byte == 0) next_field(gzip_name);
        return true;
      case State::comment:
        if (byte == 0) next_field(gzip_comment);
        return true;
      case State::header_crc:
        // This checksum is not compared: nothing that a header says is used, and what is inflated has checksums of its
        // own.
        if (++have == 2) begin_body();
        return true;
      case State::zlib_flags:
        if (!is_zlib_header(fixed[0], byte))
          return refuse("this is not a zlib file: its first two bytes are not a zlib header");
        if (byte & zlib_dictionary)
          return refuse("the zlib stream needs a preset dictionary; compress the file without one");
        begin_body();
        return true;
      case State::trailer:
        fixed[have++] = byte;
        if (have < (gzip ? 8u : 4u)) return true;
        return trailer_is_right();
      case State::body:
      case State::failed:
        break;
    }
    return false;
  }

  // Compares the trailer with the output. Returns false if it is wrong; `message` then says why.
  bool trailer_is_right() {
    if (gzip) {
      const auto crc = load<uint32_t>(fixed), isize = load<uint32_t>(fixed + 4);
      if (crc != check)
        return refuse(fmt::format("the CRC32 of a gzip member is {:08x}, but its trailer says {:08x}", check, crc));
      if (isize != static_cast<uint32_t>(size))
        return refuse(fmt::format("a gzip member inflates to {} bytes, but its trailer says {}", size, isize));
    } else {
      const uint32_t adler = uint32_t{fixed[0]} << 24 | uint32_t{fixed[1]} << 16 | uint32_t{fixed[2]} << 8 | fixed[3];
      if (adler != check)
        return refuse(
            fmt::format("the Adler32 of the zlib stream is {:08x}, but its trailer says {:08x}", check, adler));
    }
    seen_stream = true;
    state = State::between;
    return true;
  }

  // Inflates from `in` to `out`. Returns false if the data is damaged; `message` then says why.
  bool inflate_body(std::span<const std::byte>& in, std::span<std::byte>& out) {
    if (passed_bits > 0 && !in.empty()) {
      inflate.read_in = std::to_integer<uint64_t>(in.front()) >> passed_bits;
      inflate.read_in_length = 8 - std::exchange(passed_bits, 0);
      in = in.subspan(1);
    }
    constexpr size_t most = uint32_t{1} << 30;  // ISA-L counts in 32 bits
    auto in_size = static_cast<uint32_t>(std::min(in.size(), most));
    auto out_size = static_cast<uint32_t>(std::min(out.size(), most));
    if (finder) {
      in_size = static_cast<uint32_t>(finder->most_input(inflate, in_size));
      out_size = static_cast<uint32_t>(finder->most_output(out_size));
    }
    // ISA-L does not write through next_in.
    inflate.next_in = const_cast<unsigned char*>(chars(in.data()));
    inflate.avail_in = in_size;
    inflate.next_out = reinterpret_cast<unsigned char*>(out.data());
    inflate.avail_out = out_size;
    const uint64_t buffered = inflate.read_in;
    const int buffered_bits = inflate.read_in_length;
    const int result = isal_inflate(&inflate);
    // At the end of the deflate data, ISA-L's bit buffer may hold whole bytes that follow. Version 2.32 gives them back,
    // also those that an earlier call has taken, which are no longer in `in`.
    const uint32_t earlier = inflate.avail_in > in_size ? inflate.avail_in - in_size : 0;
    check_invariant(static_cast<int>(8 * earlier) <= buffered_bits,
                    "ISA-L was given {} bytes, had {} bits in its buffer, and gives back {} bytes", in_size,
                    buffered_bits, inflate.avail_in);
    in = in.subspan(in_size - (inflate.avail_in - earlier));
    const std::span<std::byte> made = out.first(out_size - inflate.avail_out);
    out = out.subspan(made.size());
    check = gzip ? crc32_gzip_refl(check, chars(made.data()), made.size())
                 : isal_adler32(check, chars(made.data()), made.size());
    size += made.size();
    taken += uint64_t{in_size} - inflate.avail_in;  // less than before, if bytes of an earlier call are given back
    input += uint64_t{in_size} - inflate.avail_in;
    switch (result) {
      case ISAL_DECOMP_OK:
      case ISAL_END_INPUT:
        break;
      case ISAL_INVALID_BLOCK:
        return refuse("damaged: an invalid deflate block");
      case ISAL_INVALID_SYMBOL:
        return refuse("damaged: an invalid deflate code");
      case ISAL_INVALID_LOOKBACK:
        return refuse("damaged: a back-reference to before the beginning of the data");
      default:
        return refuse(fmt::format("damaged: ISA-L error {}", result));
    }
    if (finder) {
      finder->add(made);
      finder->look(inflate, input, size, check);
    }
    if (inflate.block_state == ISAL_BLOCK_FINISH) {
      // What follows the deflate data, at most 8 bytes, are the first bytes of the trailer. A gzip trailer has 8 bytes.
      // A zlib trailer has 4, and nothing may follow it.
      uint64_t rest = inflate.read_in >> inflate.read_in_length % 8;
      returned_used = 0;
      returned_count = static_cast<size_t>(inflate.read_in_length / 8);
      if (earlier > 0) {
        rest = buffered >> (static_cast<uint32_t>(buffered_bits) - 8 * earlier);
        returned_count = earlier;
      }
      for (size_t i = 0; i < returned_count; i++) returned[i] = static_cast<uint8_t>(rest >> (8 * i));
      have = 0;
      state = State::trailer;
    }
    return true;
  }
};

Inflater::Inflater(Compression format) : impl_(std::make_unique<Impl>(format)) {}
Inflater::Inflater(Compression format, const SeekPoint& from, std::span<const std::byte> window)
    : impl_(std::make_unique<Impl>(format, from, window)) {}
Inflater::~Inflater() = default;

void Inflater::find_seek_points(uint64_t spacing, SeekPointFound found) {
  impl_->finder.emplace(spacing, std::move(found));
}

Inflater::Status Inflater::run(std::span<const std::byte>& in, std::span<std::byte>& out, bool last) {
  Impl& s = *impl_;
  using State = Impl::State;
  while (s.state != State::failed) {
    if (s.state == State::body) {
      if (out.empty()) return Status::more;
      const size_t in_before = in.size(), out_before = out.size();
      if (!s.inflate_body(in, out)) return Status::error;
      const bool moved = in.size() != in_before || out.size() != out_before;
      if (s.state == State::body && !moved) {
        if (!last) return Status::more;
        return s.fail("cut short: the file ends inside compressed data");
      }
    } else if (uint8_t byte; s.take(in, byte)) {
      if (!s.wrapper_byte(byte)) return Status::error;
    } else if (!last) {
      return Status::more;
    } else if (s.state == State::between) {
      return Status::end;
    } else {
      return s.fail(s.state == State::trailer ? "cut short: the file ends inside the trailer"
                                              : "cut short: the file ends inside the header");
    }
  }
  return Status::error;
}

const std::string& Inflater::message() const noexcept { return impl_->message; }
bool Inflater::stored() const noexcept { return impl_->size <= impl_->taken; }

Compression detect_compression(std::span<const std::byte> first_bytes) noexcept {
  const unsigned char* b = chars(first_bytes.data());
  if (first_bytes.size() >= 12 && mask_crc(crc32c(first_bytes.first(8))) == load<uint32_t>(b + 8))
    return Compression::none;
  if (first_bytes.size() >= 4 && b[0] == 0x1f && b[1] == 0x8b && b[2] == 8 && !(b[3] & gzip_reserved) &&
      (b[3] != 0 || first_bytes.size() < 10 || may_begin_deflate(first_bytes.subspan(10))))
    return Compression::gzip;
  // A magic number of two bytes is weak evidence: the length in a damaged record's header may begin with the same
  // bytes. But bytes 4 to 7 of a length below 4 GiB are zero.
  const bool may_be_length = first_bytes.size() >= 8 && (b[4] | b[5] | b[6] | b[7]) == 0;
  if (first_bytes.size() >= 2 && is_zlib_header(b[0], b[1]) && !may_be_length &&
      may_begin_deflate(first_bytes.subspan(2)))
    return Compression::zlib;
  return Compression::none;
}

}  // namespace feedline::io
