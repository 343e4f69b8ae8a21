#include "io/resync.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "io/crc32c.h"
#include "io/record_scanner.h"

namespace feedline::io {
namespace {

constexpr size_t window_bytes = 256 << 10;
constexpr size_t most_failed = 1 << 17;
constexpr uint64_t work_per_byte = 16;

template <typename T>
T load_as(const std::byte* p) noexcept {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

bool length_holds(const std::byte* header) noexcept {
  return mask_crc(crc32c({header, 8})) == load_as<uint32_t>(header + 8);
}

}  // namespace

// The file, seen through a buffer that moves forward.
class Resync::Window {
 public:
  Window(ReadAt read, uint64_t file_size) : read_(std::move(read)), size_(file_size) {}

  /// Bytes from `offset` on: at least `least` of them (at most window_bytes, and inside the file), up to a window.
  std::span<const std::byte> at(uint64_t offset, size_t least) {
    if (offset < begin_ || offset + least > begin_ + filled_) {
      if (!bytes_) bytes_ = std::make_unique_for_overwrite<std::byte[]>(window_bytes);
      filled_ = 0;  // in case reading throws
      begin_ = offset;
      const size_t size = std::min<uint64_t>(window_bytes, size_ - offset);
      read_(offset, {bytes_.get(), size});
      filled_ = size;
      loaded_ += size;
    }
    return {bytes_.get() + (offset - begin_), filled_ - (offset - begin_)};
  }

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

std::optional<Resync::Header> Resync::header(Window& window, uint64_t at) {
  if (size_ - at < header_bytes) return std::nullopt;
  const std::byte* bytes = window.at(at, header_bytes).data();
  return Header{load_as<uint64_t>(bytes), length_holds(bytes)};
}

// Whether a record of that length can lie there.
bool Resync::fits(uint64_t at, uint64_t length) const {
  return length <= limit_ && size_ - at >= frame_bytes && size_ - at - frame_bytes >= length;
}

// Precondition: it fits.
bool Resync::payload_holds(uint64_t at, uint64_t length) {
  work_ += frame_bytes + length;
  uint32_t crc = 0;
  uint64_t offset = at + header_bytes;
  for (const uint64_t end = offset + length; offset < end;) {
    const auto bytes = chains_->at(offset, 1);
    const size_t size = std::min<uint64_t>(bytes.size(), end - offset);
    crc = crc32c_extend(crc, bytes.first(size));
    offset += size;
  }
  return mask_crc(crc) == load_as<uint32_t>(chains_->at(offset, footer_bytes).data());
}

// The end of the valid record there, if there is one.
std::optional<uint64_t> Resync::valid_end(Window& window, uint64_t at) {
  const auto h = header(window, at);
  if (!h || !h->good || !fits(at, h->length) || !payload_holds(at, h->length)) return std::nullopt;
  return at + frame_bytes + h->length;
}

// Rule 1. `header_must_follow`: only lengths behind which a header's checksum holds, or the file ends; in a chain,
// where many places are asked about, that leaves next to nothing to check.
std::optional<uint64_t> Resync::corrected_end(uint64_t at, uint64_t stated, bool header_must_follow) {
  std::array<uint64_t, 65> lengths{stated};
  for (size_t bit = 0; bit < 64; bit++) lengths[bit + 1] = stated ^ (uint64_t{1} << bit);
  std::sort(lengths.begin(), lengths.end());
  // The lengths share their payload's front: one pass, shortest first.
  uint32_t crc = 0;
  uint64_t offset = at + header_bytes;
  for (const uint64_t length : lengths) {
    if (!fits(at, length)) break;
    const uint64_t end = at + frame_bytes + length;
    if (header_must_follow && end != size_) {
      const auto following = header(*chains_, end);
      if (!following || !following->good) continue;
    }
    while (offset < end - footer_bytes) {
      const auto bytes = chains_->at(offset, 1);
      const size_t size = std::min<uint64_t>(bytes.size(), end - footer_bytes - offset);
      crc = crc32c_extend(crc, bytes.first(size));
      offset += size;
      work_ += size;
    }
    if (mask_crc(crc) == load_as<uint32_t>(chains_->at(end - footer_bytes, footer_bytes).data())) return end;
  }
  return std::nullopt;
}

// The first place in [from, to) at which a good header of a record that fits lies; `to` if there is none.
uint64_t Resync::find_header(uint64_t from, uint64_t to) {
  while (from < to && size_ - from >= frame_bytes) {
    const auto bytes = search_->at(from, frame_bytes);
    const size_t places = std::min<uint64_t>(bytes.size() - header_bytes + 1, to - from);
    for (size_t i = 0; i < places; i++) {
      const auto length = load_as<uint64_t>(bytes.data() + i);
      if (length <= limit_ && length_holds(bytes.data() + i) && fits(from + i, length)) return from + i;
    }
    from += places;
  }
  return to;
}

// Whether a chain of valid records begins inside [begin, end) and reaches or crosses `end`. Says yes, to be safe, where
// finding out costs too much.
bool Resync::crossed(uint64_t begin, uint64_t end) {
  const uint64_t allowed = work_ + work_per_byte * (end - begin);
  std::unordered_set<uint64_t> seen;
  for (uint64_t place = begin; (place = find_header(place + 1, end)) < end;) {
    for (uint64_t at = place;;) {
      if (!seen.insert(at).second) break;
      const auto next = valid_end(*chains_, at);
      if (!next) break;
      if (*next >= end) return true;
      at = *next;
    }
    if (work_ > allowed || seen.size() > most_failed) return true;
  }
  return false;
}

// From one record of a chain to the next: rule 3. Nothing: the chain breaks here.
std::optional<uint64_t> Resync::step(uint64_t at) {
  const auto h = header(*chains_, at);
  if (!h) return std::nullopt;
  if (!h->good) return corrected_end(at, h->length, true);
  if (!fits(at, h->length)) return std::nullopt;
  const uint64_t end = at + frame_bytes + h->length;
  if (payload_holds(at, h->length) || !crossed(at, end)) return end;
  return std::nullopt;
}

// Rule 2.
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

std::optional<uint64_t> Resync::end_of_record(uint64_t damage) {
  const auto h = header(*chains_, damage);
  return h && !h->good ? corrected_end(damage, h->length, false) : std::nullopt;
}

uint64_t Resync::after(uint64_t damage) {
  failed_.clear();
  work_ = 0;
  uint64_t first = damage + 1;  // where a search begins
  const auto h = header(*chains_, damage);
  if (!h) return size_;
  if (const auto end = end_of_record(damage)) return *end;
  if (h->good) {
    // Everything up to the end of the file, or of the record, lies inside it.
    if (h->length > size_ - damage || size_ - damage - h->length < frame_bytes) return size_;
    const uint64_t end = damage + frame_bytes + h->length;
    // The chain that was proven when this place was accepted goes on behind this record: it only needs its new length.
    const bool on_chain = !chain_.broken && chain_.from <= damage && damage < chain_.at && end <= chain_.at;
    if (!on_chain) chain_ = {end, end, false};
    if (proven(end)) return end;
    if (h->length > limit_) first = end;
  }
  const uint64_t allowance = 2 * (limit_ + frame_bytes) + 64 * window_bytes;
  const uint64_t loaded = chains_->loaded();
  for (uint64_t place = first; (place = find_header(place, size_)) < size_; place++) {
    const uint64_t work = work_ + chains_->loaded() - loaded;
    if (failed_.count(place) || work > allowance + work_per_byte * (place - damage)) continue;
    if (!valid_end(*chains_, place)) continue;
    chain_ = {place, place, false};
    if (proven(place)) return place;
  }
  chain_.broken = true;
  return size_;
}

}  // namespace feedline::io
