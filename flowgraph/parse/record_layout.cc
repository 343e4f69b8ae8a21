#include "flowgraph/parse/record_layout.h"

#include <algorithm>
#include <bit>

namespace feedline::flow {
namespace {

/// Reads the header of an entry in the form that writers use: a key, then a value that is one list in one run.
class HeaderReader {
 public:
  HeaderReader(const uint8_t* p, const uint8_t* end) : begin_(p), p_(p), end_(end) {}

  bool read(ListKind wanted, Payload& kind) {
    if (!tag(0x0a) || !length() || !key() || !tag(0x12) || !length()) return false;
    if (wanted == ListKind::unset) {
      kind = Payload::unread;
      return true;
    }
    if (p_ == end_) {
      kind = Payload::nothing;
      return true;
    }
    if (!tag(static_cast<uint8_t>(wire::tag(static_cast<uint32_t>(wanted), wire::delimited))) || !length())
      return false;
    if (tag(0x0a)) {
      kind = wanted == ListKind::bytes     ? Payload::bytes
             : wanted == ListKind::float32 ? Payload::floats
                                           : Payload::varints;
      return length();
    }
    kind = wanted == ListKind::float32 ? Payload::one_float : Payload::varint;
    return (wanted == ListKind::float32 && tag(0x0d) && end_ - p_ == 4) || (wanted == ListKind::int64 && tag(0x08));
  }

  uint32_t header() const { return static_cast<uint32_t>(p_ - begin_); }
  uint32_t payload() const { return static_cast<uint32_t>(end_ - p_); }
  /// Returns whether all lengths have one byte.
  bool narrow() const {
    return std::all_of(lengths.begin(), lengths.begin() + count,
                       [](const Length& length) { return length.width == 1; });
  }
  bool too_wide() const {
    return std::any_of(lengths.begin(), lengths.begin() + count, [](const Length& length) { return length.width > 4; });
  }

  struct Length {
    uint32_t at;
    uint32_t width;
    uint32_t value;
  };
  std::array<Length, 4> lengths{};
  size_t count = 0;

 private:
  bool tag(uint8_t tag) {
    if (p_ == end_ || *p_ != tag) return false;
    p_++;
    return true;
  }
  /// Reads a length that must reach to the end of the entry.
  bool length() {
    const uint8_t* at = p_;
    uint32_t size;
    p_ = wire::read_size(p_, end_, size);
    if (!p_ || p_ + size != end_) return false;
    lengths[count++] = {static_cast<uint32_t>(at - begin_), static_cast<uint32_t>(p_ - at), size};
    return true;
  }
  bool key() {
    uint32_t size;
    if (!tag(0x0a) || !(p_ = wire::read_size(p_, end_, size))) return false;
    p_ += size;
    return true;
  }

  const uint8_t* begin_;
  const uint8_t* p_;
  const uint8_t* end_;
};

enum class Form { exact, shifted, by_length };

/// Fills in the words and masks that match() compares or, if `form` is by_length, those of match_long().
void describe(EntryShape& shape, const HeaderReader& reader, const uint8_t* p, Form form) {
  const uint32_t header = reader.header();
  (form == Form::by_length ? shape.long_header : shape.header) = header;
  shape.payload = reader.payload();
  shape.max_payload = form == Form::shifted ? shape.payload + 127 - p[1] : shape.payload;
  shape.length = p[1];
  const auto mask_of = [&](uint32_t word) {
    uint64_t mask = form == Form::by_length ? ~uint64_t{0} : 0;
    for (size_t i = 0; form != Form::exact && i < reader.count; i++) {
      for (uint32_t byte = reader.lengths[i].at; byte < reader.lengths[i].at + reader.lengths[i].width; byte++) {
        if (byte - word >= 8) continue;
        mask = form == Form::shifted ? mask | uint64_t{1} << 8 * (byte - word)
                                     : mask & ~(uint64_t{0xff} << 8 * (byte - word));
      }
    }
    return mask;
  };
  shape.first = load<uint64_t>(p);
  shape.first_mask = mask_of(0);
  shape.last = load<uint64_t>(p + header - 8);
  shape.last_mask = mask_of(header - 8);
  for (uint32_t i = 0; 8 * i + 16 < header; i++) {
    shape.middle[i] = load<uint64_t>(p + 8 * i + 8);
    shape.middle_mask[i] = mask_of(8 * i + 8);
  }
  if (form != Form::by_length) return;
  shape.lengths = static_cast<uint32_t>(reader.count);
  for (size_t i = 0; i < reader.count; i++) {
    const HeaderReader::Length& length = reader.lengths[i];
    shape.length_at[i] = {static_cast<uint8_t>(length.at + length.width), static_cast<uint8_t>(length.width),
                          static_cast<uint16_t>(reader.lengths[0].value - length.value)};
  }
}

EntryShape::Action action_of(Payload kind, bool direct) {
  if (kind == Payload::unread) return EntryShape::Action::skip;
  if (!direct) return EntryShape::Action::think;
  switch (kind) {
    case Payload::bytes:
      return EntryShape::Action::store_bytes;
    case Payload::floats:
      return EntryShape::Action::store_floats;
    case Payload::varints:
    case Payload::varint:
      return EntryShape::Action::store_int;
    default:
      return EntryShape::Action::think;
  }
}

}  // namespace

const uint8_t* EntryShape::match_long(const uint8_t* p, const uint8_t* end, uint32_t& size) const noexcept {
  const auto differs = [&](uint32_t at, uint64_t learned, uint64_t mask) {
    return ((load<uint64_t>(p + at) ^ learned) & mask) != 0;
  };
  if (static_cast<uint64_t>(end - p) < long_header) return nullptr;
  if (differs(0, first, first_mask) || differs(long_header - 8, last, last_mask)) return nullptr;
  for (uint32_t i = 0; 8 * i + 16 < long_header; i++) {
    if (differs(8 * i + 8, middle[i], middle_mask[i])) return nullptr;
  }
  uint32_t whole = 0;
  for (uint32_t i = 0; i < lengths; i++) {
    const Length& here = length_at[i];
    const uint32_t shift = 32 - 8u * here.width;
    const uint32_t bytes = load<uint32_t>(p + here.end - 4) >> shift;
    if ((bytes & 0x80808080) != 0x00808080u >> shift) return nullptr;
    const uint32_t value = (bytes & 0x7f) | (bytes & 0x7f00) >> 1 | (bytes & 0x7f0000) >> 2 | (bytes & 0x7f000000) >> 3;
    if (i == 0) whole = value;
    if (value != whole - here.less) return nullptr;
  }
  const uint8_t* begin = p + long_header;
  const uint8_t* after = p + length_at[0].end + whole;
  if (whole > static_cast<uint64_t>(end - p - length_at[0].end) || after < begin) return nullptr;
  size = static_cast<uint32_t>(after - begin);
  return begin;
}

RecordLayout::RecordLayout(std::vector<RequestedKey> keys)
    : keys_(std::move(keys)), shapes_(2), of_hash_(std::bit_ceil(std::min<size_t>(8 * keys_.size() + 32, 4096))) {
  start()->next = nothing()->next = {nothing(), nothing()};
}

EntryShape* RecordLayout::learn(EntryShape* before, const uint8_t* p, const uint8_t* end, uint64_t key_hash,
                                int32_t key) {
  std::array<EntryShape*, 2>& known = of_hash_[key_hash & (of_hash_.size() - 1)];
  EntryShape* shape = nullptr;
  bool by_length = false;  // this key already has a shape with exact lengths or with long lengths
  uint32_t ignored;
  for (EntryShape* candidate : known) {
    if (!candidate) continue;
    if (candidate->match(p, end, ignored) || candidate->match_long(p, end, ignored)) shape = candidate;
    const bool exact = candidate->header != EntryShape::never && candidate->first_mask == 0;
    by_length = by_length || (candidate->key_hash == key_hash && (exact || candidate->lengths != 0));
  }
  if (!shape) {
    shape = known[1] ? known[1] : &shapes_.emplace_back();
    // An older shape of this key differs only in its lengths. So the shapes that followed it are the best guess for
    // those that follow the new shape.
    const EntryShape* like = known[0] && known[0]->key_hash == key_hash ? known[0] : nothing();
    known = {shape, known[0]};
    *shape = EntryShape{};
    shape->next = like->next;
    shape->key_hash = key_hash;
    EntryShape::Use& use = shape->use;
    use.key = key;
    const RequestedKey requested = key < 0 ? RequestedKey{} : keys_[static_cast<size_t>(key)];
    HeaderReader reader(p, end);
    if ((key < 0 || requested.steps || requested.kind != ListKind::unset) && reader.read(requested.kind, use.kind) &&
        reader.header() >= 8 && reader.header() <= EntryShape::max_header) {
      if (requested.steps) use.kind = Payload::steps;
      const bool sized =
          requested.payload != RequestedKey::any_size && (use.kind == Payload::bytes || use.kind == Payload::floats);
      const bool exact = sized || use.kind == Payload::nothing || use.kind == Payload::one_float;
      if (!sized || reader.payload() == requested.payload) {
        describe(*shape, reader, p,
                 exact                             ? Form::exact
                 : reader.narrow()                 ? Form::shifted
                 : by_length && !reader.too_wide() ? Form::by_length
                                                   : Form::exact);
        use.action = action_of(use.kind, requested.column != nullptr);
        use.column = requested.column;
        use.row_size = requested.row_size;
        use.bit = use.action == EntryShape::Action::think ? 0 : requested.bit;
      }
    }
  }
  std::array<EntryShape*, 2>& next = before->next;
  if (next[0] != shape) next = {shape, next[0]};
  return shape;
}

}  // namespace feedline::flow
