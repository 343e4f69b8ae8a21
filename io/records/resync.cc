#include "io/records/resync.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "base/load.h"
#include "io/records/crc32c.h"
#include "io/records/crc32c_table.h"
#include "io/records/record_scanner.h"

namespace feedline::io {
namespace {

constexpr size_t window_bytes = 256 << 10;
constexpr size_t most_failed = 1 << 17;  // the maximum number of places that a search remembers
constexpr uint64_t work_per_byte = 16;   // how many bytes may be read to try candidates, for each byte searched

// Returns whether the checksum of the length in a header is right.
bool length_holds(const std::byte* header) noexcept {
  static const uint32_t crc_of_zero = mask_crc(crc32c(std::array<std::byte, 8>{}));
  const auto stored = load<uint32_t>(header + 8);
  // Long runs of zeros are common, so their checksum is not computed each time.
  if (load<uint64_t>(header) == 0) return stored == crc_of_zero;
  return mask_crc(crc32c({header, 8})) == stored;
}

}  // namespace

// A buffer that moves forward over the file.
class Resync::Window {
 public:
  Window(ReadAt read, uint64_t file_size) : read_(std::move(read)), size_(file_size) {}

  /// Returns the bytes of the file from `offset` on: at least `least` bytes, and as many more as the window holds.
  /// Precondition: these `least` bytes lie inside the file, and are at most window_bytes.
  std::span<const std::byte> at(uint64_t offset, size_t least) {
    if (offset < begin_ || offset + least > begin_ + filled_) {
      if (!bytes_) bytes_ = std::make_unique_for_overwrite<std::byte[]>(window_bytes);
      filled_ = 0;  // so that the window is empty if reading throws
      begin_ = offset;
      const size_t size = std::min<uint64_t>(window_bytes, size_ - offset);
      read_(offset, {bytes_.get(), size});
      filled_ = size;
      loaded_ += size;
    }
    return {bytes_.get() + (offset - begin_), filled_ - (offset - begin_)};
  }

  /// Returns how many bytes of the file have been read into the window so far.
  uint64_t loaded() const noexcept { return loaded_; }

 private:
  const ReadAt read_;
  const uint64_t size_;
  uint64_t loaded_ = 0;
  uint64_t begin_ = 0;
  size_t filled_ = 0;
  std::unique_ptr<std::byte[]> bytes_;
};

Resync::Resync(ReadAt read, uint64_t file_size, uint64_t record_limit)
    : size_(file_size),
      limit_(std::min<uint64_t>(record_limit, UINT32_MAX)),
      search_(std::make_unique<Window>(read, file_size)),
      chains_(std::make_unique<Window>(std::move(read), file_size)) {}

Resync::~Resync() = default;

std::optional<Resync::Header> Resync::header(uint64_t at) {
  if (size_ - at < header_bytes) return std::nullopt;
  const std::byte* bytes = chains_->at(at, header_bytes).data();
  return Header{load<uint64_t>(bytes), length_holds(bytes)};
}

// Returns whether a record with a payload of `length` bytes can lie at `at`.
bool Resync::fits(uint64_t at, uint64_t length) const {
  return length <= limit_ && size_ - at >= frame_bytes && size_ - at - frame_bytes >= length;
}

// Continues `crc` over the bytes [from, to) of the file, and returns the result.
uint32_t Resync::extend_crc(uint32_t crc, uint64_t from, uint64_t to) {
  work_ += to - from;
  while (from < to) {
    const auto bytes = chains_->at(from, 1);
    const size_t size = std::min<uint64_t>(bytes.size(), to - from);
    crc = crc32c_extend(crc, bytes.first(size));
    from += size;
  }
  return crc;
}

// Returns the CRC of the payload of the record at `at`. Precondition: fits(at, length).
uint32_t Resync::payload_crc(uint64_t at, uint64_t length) {
  work_ += frame_bytes;
  return extend_crc(0, at + header_bytes, at + header_bytes + length);
}

// Returns the masked CRC that the record at `at` states for its payload. Precondition: fits(at, length).
uint32_t Resync::stored_crc(uint64_t at, uint64_t length) {
  return load<uint32_t>(chains_->at(at + header_bytes + length, footer_bytes).data());
}

// Applies rule 1 of resync.h to a payload: returns whether one wrong bit, in the payload or in its stored checksum,
// explains the wrong checksum. CRCs are linear. So the CRCs of the wrong and of the right payload differ by the CRC of
// a payload that is zero except for the wrong bit. The loop undoes one of the zero bytes after this bit at a time,
// until the register has a value that a byte with a single bit would leave.
bool Resync::one_bit_off(uint64_t at, uint64_t length, uint32_t crc) {
  constexpr uint64_t most = 1 << 20;  // bytes; one of their 8 million bits fits by chance in 1 of 500 cases
  const uint32_t stored = stored_crc(at, length);
  if (std::has_single_bit(mask_crc(crc) ^ stored)) return true;
  if (length > most) return false;
  const auto& table = crc32c_slices[0];
  // After a zero byte the register r becomes (r >> 8) ^ table[r & 255]. The top byte of table[b] determines b.
  static constexpr auto byte_of_top = [] {
    std::array<uint8_t, 256> bytes{};
    for (unsigned b = 0; b < 256; b++) bytes[crc32c_slices[0][b] >> 24] = static_cast<uint8_t>(b);
    return bytes;
  }();
  uint32_t difference = crc ^ unmask_crc(stored);
  for (uint64_t zeros = 0; zeros < length; zeros++) {
    const uint8_t byte = byte_of_top[difference >> 24];
    if (difference == table[byte] && std::has_single_bit(byte)) return true;
    difference = (difference ^ table[byte]) << 8 | byte;
  }
  return false;
}

// Returns the end of the valid record that begins at `at`, or nothing if none begins there.
std::optional<uint64_t> Resync::valid_end(uint64_t at) {
  const auto h = header(at);
  if (!h || !h->good || !fits(at, h->length)) return std::nullopt;
  if (mask_crc(payload_crc(at, h->length)) != stored_crc(at, h->length)) return std::nullopt;
  return at + frame_bytes + h->length;
}

// Applies rule 1 of resync.h to a header with a wrong checksum that states the length `stated`: returns the end of the
// record if the payload's checksum fits one of the lengths. With `header_must_follow`, a length is tried only if the
// record would be followed by a good header or by the end of the file. step() calls this function for many places, and
// with this condition it checks almost no payloads.
std::optional<uint64_t> Resync::corrected_end(uint64_t at, uint64_t stated, bool header_must_follow) {
  std::array<uint64_t, 65> lengths{stated};
  for (size_t bit = 0; bit < 64; bit++) lengths[bit + 1] = stated ^ (uint64_t{1} << bit);
  std::sort(lengths.begin(), lengths.end());
  // All these payloads begin at the same place, so one pass computes their CRCs, the shortest first.
  uint32_t crc = 0;
  uint64_t offset = at + header_bytes;
  for (const uint64_t length : lengths) {
    if (!fits(at, length)) break;
    const uint64_t end = at + frame_bytes + length;
    if (header_must_follow && end != size_) {
      const auto following = header(end);
      if (!following || !following->good) continue;
    }
    crc = extend_crc(crc, offset, end - footer_bytes);
    offset = end - footer_bytes;
    if (mask_crc(crc) == load<uint32_t>(chains_->at(offset, footer_bytes).data())) return end;
  }
  return std::nullopt;
}

// Returns the first place in [from, to) with a good header of a record that fits, or `to` if there is none.
uint64_t Resync::find_header(uint64_t from, uint64_t to) {
  while (from < to && size_ - from >= frame_bytes) {
    const auto bytes = search_->at(from, frame_bytes);
    const size_t places = std::min<uint64_t>(bytes.size() - header_bytes + 1, to - from);
    for (size_t i = 0; i < places;) {
      // The upper four bytes of a length that fits are zero. Byte i + 7 is one of them for the places i to i + 3. So if
      // this byte is not zero, no record that fits begins at these four places.
      if (bytes[i + 7] != std::byte{0}) {
        i += 4;
        continue;
      }
      const auto length = load<uint64_t>(bytes.data() + i);
      if (length <= limit_ && length_holds(bytes.data() + i) && fits(from + i, length)) return from + i;
      i++;
    }
    from += places;
  }
  return to;
}

std::optional<Resync::Candidate> Resync::candidate(uint64_t from, uint64_t to) {
  const uint64_t place = find_header(from, to);
  if (place == to) return std::nullopt;
  return Candidate{place, frame_bytes + load<uint64_t>(search_->at(place, header_bytes).data())};
}

// Returns whether a chain of valid records begins inside [begin, end) and reaches or crosses `end`. Returns true, which
// is the safe answer, also if too many bytes would have to be read to find out.
bool Resync::crossed(uint64_t begin, uint64_t end) {
  const uint64_t allowed = work_ + work_per_byte * (end - begin);
  std::unordered_set<uint64_t> seen;
  for (uint64_t place = begin; (place = find_header(place + 1, end)) < end;) {
    for (uint64_t at = place;;) {
      if (work_ > allowed || seen.size() > most_failed) return true;
      if (!seen.insert(at).second) break;
      const auto next = valid_end(at);
      if (!next) break;
      if (*next >= end) return true;
      at = *next;
    }
  }
  return false;
}

// Returns the offset at which the record at `at` ends and the chain continues. By rule 3 of resync.h, a chain may
// continue over a damaged record. Returns nothing if the chain breaks at `at`.
std::optional<uint64_t> Resync::step(uint64_t at) {
  const auto h = header(at);
  if (!h) return std::nullopt;
  if (!h->good) return chain_.strict ? std::nullopt : corrected_end(at, h->length, true);
  if (!fits(at, h->length)) return std::nullopt;
  const uint64_t end = at + frame_bytes + h->length;
  const uint32_t crc = payload_crc(at, h->length);
  if (mask_crc(crc) == stored_crc(at, h->length)) return end;
  if (chain_.strict || (!one_bit_off(at, h->length, crc) && crossed(at, end))) return std::nullopt;
  return end;
}

// Applies rule 2 of resync.h to `place`: follows chain_ further, and returns whether it reaches far enough to prove
// that a record of the file begins at `place`.
bool Resync::proven(uint64_t place) {
  const uint64_t goal = std::min(size_, place + limit_ + frame_bytes);  // no overflow: limit_ has 32 bits
  std::vector<uint64_t> walked;
  while (!chain_.broken && chain_.at < goal) {
    if (failed_.count(chain_.at)) {
      chain_.broken = true;
      break;
    }
    if (walked.size() < most_failed) walked.push_back(chain_.at);
    if (const auto next = step(chain_.at))
      chain_.at = *next;
    else
      chain_.broken = true;
  }
  if (!chain_.broken) return true;
  for (const uint64_t at : walked)
    if (failed_.size() < most_failed) failed_.insert(at);
  return false;
}

// Returns the first place from `from` on that rule 2 of resync.h accepts, or the size of the file. Places before
// `inside_until` lie inside a record with a good header. So they are accepted only with a chain without damage.
uint64_t Resync::search(uint64_t from, uint64_t inside_until) {
  if (searched_from_ == from) return found_;
  failed_.clear();
  work_ = 0;
  const uint64_t allowance = 2 * (limit_ + frame_bytes) + 64 * window_bytes;
  const uint64_t loaded = chains_->loaded();
  uint64_t place = from;
  for (; (place = find_header(place, size_)) < size_; place++) {
    const uint64_t work = work_ + chains_->loaded() - loaded;
    if (failed_.count(place) || work > allowance + work_per_byte * (place - from)) continue;
    if (!valid_end(place)) continue;
    chain_ = {place, place, false, place < inside_until};
    if (proven(place)) break;
  }
  searched_from_ = from;  // only now, in case reading throws
  return found_ = place;
}

std::optional<uint64_t> Resync::end_of_record(uint64_t damage) {
  const auto h = header(damage);
  return h && !h->good ? corrected_end(damage, h->length, false) : std::nullopt;
}

uint64_t Resync::after(uint64_t damage) {
  const auto h = header(damage);
  if (!h) return size_;
  if (!h->good) {
    if (const auto end = corrected_end(damage, h->length, false)) return *end;
    return search(damage + 1, 0);
  }
  // The header is good. If the record would end after the end of the file, everything that follows may lie inside it.
  if (h->length > size_ - damage || size_ - damage - h->length < frame_bytes) return size_;
  const uint64_t end = damage + frame_bytes + h->length;
  const bool too_large = h->length > limit_;
  if (!too_large && one_bit_off(damage, h->length, payload_crc(damage, h->length))) return end;
  // The chain that proved an earlier place may have passed over this damage already. If the chain continues after this
  // record, it is used again.
  if (!(!chain_.strict && chain_.from <= damage && damage < chain_.at && end <= chain_.at))
    chain_ = {end, end, false, false};
  failed_.clear();
  if (proven(end) && (too_large || !crossed(damage, end))) return end;
  return search(too_large ? end : damage + 1, end);
}

}  // namespace feedline::io
