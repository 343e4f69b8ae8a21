#include "flowgraph/record_layout.h"

#include <bit>

namespace feedline::flow {
namespace {

using Payload = EntryShape::Payload;

/// Reads the header of an entry in the form that writers give it: a key, then a value of one list of one run.
class HeaderReader {
 public:
  HeaderReader(const uint8_t* p, const uint8_t* end) : begin_(p), p_(p), end_(end) {}

  bool tag(uint8_t tag) {
    if (p_ == end_ || *p_ != tag) return false;
    p_++;
    return true;
  }
  /// A length that reaches to the end of the entry.
  bool length() {
    const uint8_t* at = p_;
    uint32_t size;
    p_ = wire::read_size(p_, end_, size);
    if (!p_ || p_ + size != end_) return false;
    shifts_ = shifts_ && p_ == at + 1;
    if (lengths_ == at_.size()) return false;
    at_[lengths_++] = static_cast<uint32_t>(at - begin_);
    return true;
  }
  bool key() {
    uint32_t size;
    if (!tag(0x0a) || !(p_ = wire::read_size(p_, end_, size))) return false;
    p_ += size;
    return true;
  }
  bool at_end() const { return p_ == end_; }
  uint8_t peek() const { return p_ == end_ ? 0 : *p_; }

  uint32_t header() const { return static_cast<uint32_t>(p_ - begin_); }
  uint32_t payload() const { return static_cast<uint32_t>(end_ - p_); }
  /// The payload has this size, always.
  void exact() { shifts_ = false; }
  /// All lengths have one byte, and may be others.
  bool shifts() const { return shifts_; }
  uint64_t word(uint32_t at) const { return wire::load<uint64_t>(begin_ + at); }
  uint64_t shift_word(uint32_t at) const {
    uint64_t word = 0;
    for (size_t i = 0; shifts_ && i < lengths_; i++) {
      if (at_[i] - at < 8) word |= uint64_t{1} << 8 * (at_[i] - at);
    }
    return word;
  }

 private:
  const uint8_t* begin_;
  const uint8_t* p_;
  const uint8_t* end_;
  bool shifts_ = true;
  size_t lengths_ = 0;
  std::array<uint32_t, 4> at_{};
};

/// wanted: unset for a feature nobody asked for.
bool read_header(HeaderReader& reader, ListKind wanted, Payload& kind) {
  if (!reader.tag(0x0a) || !reader.length() || !reader.key() || !reader.tag(0x12) || !reader.length()) return false;
  if (wanted == ListKind::unset) {
    kind = Payload::value;
    return true;
  }
  if (reader.at_end()) {
    reader.exact();
    kind = Payload::nothing;
    return true;
  }
  const uint8_t list = static_cast<uint8_t>(wire::tag(static_cast<uint32_t>(wanted), wire::delimited));
  if (!reader.tag(list) || !reader.length()) return false;
  const uint8_t run = reader.peek();
  if (!reader.tag(run)) return false;
  switch (list << 8 | run) {
    case 0x0a0a:
      kind = Payload::bytes;
      return reader.length();
    case 0x120a:
      kind = Payload::floats;
      return reader.length();
    case 0x120d:
      reader.exact();
      kind = Payload::floats;
      return reader.payload() == 4;
    case 0x1a0a:
      kind = Payload::varints;
      return reader.length();
    case 0x1a08:
      kind = Payload::varint;
      return true;
    default:
      return false;
  }
}

}  // namespace

RecordLayout::RecordLayout(size_t keys) : victim_(std::bit_ceil(2 * keys + 32)) {
  if (victim_.size() > 4096) victim_.resize(4096);
  shapes_.resize(2 + 2 * victim_.size());
  shapes_[start].next = {1, 1};
}

uint16_t RecordLayout::learn(uint16_t before, const uint8_t* p, const uint8_t* end, uint64_t key_hash, int32_t key,
                             ListKind wanted) noexcept {
  const size_t pair = key_hash & (victim_.size() - 1);
  const uint16_t first = static_cast<uint16_t>(2 + 2 * pair);
  uint16_t number = 0;
  uint32_t ignored;
  for (uint16_t candidate : {first, static_cast<uint16_t>(first + 1)}) {
    if (shapes_[candidate].match(p, end, ignored)) number = candidate;
  }
  if (number == 0) {
    number = static_cast<uint16_t>(first + victim_[pair]);
    victim_[pair] ^= 1;
    EntryShape& shape = shapes_[number];
    // What followed this key with other lengths probably follows it now.
    const std::array<uint16_t, 2> next = shape.key_hash == key_hash ? shape.next : std::array<uint16_t, 2>{1, 1};
    shape = EntryShape{};
    shape.next = next;
    shape.key_hash = key_hash;
    HeaderReader reader(p, end);
    Payload kind;
    if ((key < 0 || wanted != ListKind::unset) && read_header(reader, wanted, kind) && reader.header() >= 8 &&
        reader.header() <= EntryShape::max_header) {
      shape.header = reader.header();
      shape.payload = reader.payload();
      shape.max_payload = reader.shifts() ? shape.payload + 127 - p[1] : shape.payload;
      shape.length = p[1];
      shape.kind = kind;
      shape.key = key;
      shape.first = reader.word(0);
      shape.first_shift = reader.shift_word(0);
      shape.last = reader.word(shape.header - 8);
      shape.last_shift = reader.shift_word(shape.header - 8);
      for (uint32_t i = 0; 8 * i + 16 < shape.header; i++) {
        shape.middle[i] = reader.word(8 * i + 8);
        shape.middle_shift[i] = reader.shift_word(8 * i + 8);
      }
    }
  }
  std::array<uint16_t, 2>& next = shapes_[before].next;
  if (next[0] != number) next = {number, next[0]};
  return number;
}

}  // namespace feedline::flow
