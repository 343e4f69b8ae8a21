// Learns from the records themselves what the entries of a map<string, Feature> look like. Entries of a map<string,
// FeatureList> are learned up to the list, which is then the payload.
//
// Writers put the same keys into every record, in the same order. Most values always have the same size, or change only
// the lengths around them. So each entry is predicted from the one before it. An entry is the predicted one if its
// header
//
//     0a LENGTH  0a KEYLENGTH key  12 LENGTH  KIND LENGTH  0a LENGTH | payload
//
// has the learned bytes, except that every LENGTH may differ from the learned one, all by the same amount. Checking
// this takes a few 8-byte compares. If the check fails, the general parser reads the entry and the layout learns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "flowgraph/parse/columns.h"
#include "flowgraph/parse/feature_values.h"
#include "flowgraph/parse/packed_varints.h"
#include "flowgraph/parse/wire.h"

namespace feedline::flow {

/// A key that the pipeline asks for, with what is known about its entries beforehand.
struct RequestedKey {
  static constexpr uint64_t any_size = ~uint64_t{0};

  // Unset if `steps`. Otherwise, unset means that several features have this key; then its entries are never predicted.
  ListKind kind = ListKind::unset;
  bool steps = false;           // the values are FeatureLists
  uint64_t payload = any_size;  // bytes that every bytes value, or every run of floats, must have
  // The column for payloads that need no further checks: one value in each row, or floats of one size. Null: every
  // payload needs Action::think.
  std::byte* column = nullptr;
  uint32_t row_size = 0;
  uint64_t bit = 0;  // the feature's bit, which is set when its payload is stored in `column`
};

/// The bytes of an entry that was seen before, by which entries like it are recognised, and what to do with such
/// entries.
struct alignas(64) EntryShape {
  /// What to do with the payload. `think`: check it against the feature's specification before storing it.
  enum class Action : uint8_t { skip, store_bytes, store_floats, store_int, think };
  static constexpr uint32_t max_header = 64;
  static constexpr uint32_t never = ~uint32_t{0};

  uint32_t header = never;   // bytes before the payload, 8 to max_header; `never`: match() refuses every entry
  uint32_t payload = 0;      // bytes of the payload when the shape was learned
  uint32_t max_payload = 0;  // bytes; match() refuses larger payloads, and negative sizes, which are large as unsigned
  uint8_t length = 0;        // the second byte, which is the first length, when the shape was learned
  // The header in 8-byte words, of which the last overlaps the one before it. A mask has a 1 in each byte that shifts
  // with `length`.
  uint64_t first = 0, first_mask = 0, last = 0, last_mask = 0;
  std::array<EntryShape*, 2> next = {};  // the shapes that followed this one, the most recent first
  struct Use {
    Action action = Action::think;
    Payload kind = Payload::unread;
    int32_t key = -1;             // number of the requested key, or -1
    std::byte* column = nullptr;  // column, bit and row_size are those of RequestedKey
    uint64_t bit = 0;
    uint32_t row_size = 0;

    /// Stores a payload that needs no further checks. Returns false if the action is `think`, or if it is `store_int`
    /// and the payload is not exactly one varint. Then the row of the column is unspecified.
    bool store(const uint8_t* payload, uint32_t size, uint32_t row) const noexcept {
      std::byte* const out = column + uint64_t{row} * row_size;
      switch (action) {
        case Action::store_bytes:
          *reinterpret_cast<BytesRef*>(out) = {reinterpret_cast<const std::byte*>(payload), size};
          return true;
        case Action::store_floats:
          std::memcpy(out, payload, size);
          return true;
        case Action::store_int:
          return wire::read_varint_before(payload + size, size, *reinterpret_cast<uint64_t*>(out));
        case Action::skip:
          return true;
        case Action::think:
          return false;
      }
      return false;
    }
  };
  Use use;
  std::array<uint64_t, max_header / 8 - 1> middle{}, middle_mask{};
  // The long form is for lengths of two bytes and more. Its masks have 0xff in each byte that does not belong to a
  // length, and each length is compared by itself.
  struct Length {
    uint8_t end = 0;    // bytes of the header up to the end of this length
    uint8_t width = 0;  // bytes that this length takes, at most 4
    uint16_t less = 0;  // by how much its value is less than that of the first length
  };
  uint32_t long_header = never;
  uint32_t lengths = 0;
  std::array<Length, 4> length_at{};
  uint64_t key_hash = 0;

  /// Returns where the payload of the entry at `p` begins and sets its size. Returns nullptr if the entry has a
  /// different shape or reaches beyond `end`.
  const uint8_t* match(const uint8_t* p, const uint8_t* end, uint32_t& size) const noexcept {
    if (static_cast<uint64_t>(end - p) < header) return nullptr;
    const uint32_t shift = uint32_t{p[1]} - length;
    const uint64_t shift64 = static_cast<uint64_t>(static_cast<int32_t>(shift));
    const auto differs = [&](const uint8_t* at, uint64_t learned, uint64_t mask) {
      return load<uint64_t>(at) != learned + shift64 * mask;
    };
    const uint8_t* begin = p + header;
    if (differs(p, first, first_mask) || differs(begin - 8, last, last_mask)) return nullptr;
    for (uint32_t i = 0; 8 * i + 16 < header; i++) {
      if (differs(p + (8 * i + 8), middle[i], middle_mask[i])) return nullptr;
    }
    // The shifted words are right only if every length is between 0 and 127. Of the lengths, the payload's is the
    // smallest and the first is the greatest, and both have the same shift. So one check of the payload's size is
    // enough: with at most `max_payload` bytes, the first length is at most 127.
    size = payload + shift;
    return size <= max_payload && size <= static_cast<uint64_t>(end - begin) ? begin : nullptr;
  }

  /// Does the same as match() for entries in the long form, which match() refuses. Precondition: the two bytes before
  /// `p` may be read; an entry of an Example has as many bytes before it.
  const uint8_t* match_long(const uint8_t* p, const uint8_t* end, uint32_t& size) const noexcept;
};

/// The shapes seen so far, and which shape followed which. Their number is bounded: a new shape may replace an older
/// one. A wrong guess costs only time.
class RecordLayout {
 public:
  explicit RecordLayout(std::vector<RequestedKey> keys);

  /// Returns a shape that stands for the beginning of a record; its `next` are the shapes of first entries.
  EntryShape* start() noexcept { return &shapes_[0]; }

  /// Notes that the entry [p, end) with this key came after an entry of shape `before` and was not predicted. Learns
  /// the entry's shape if it is in the usual form. `key` is the number of the requested key, or -1. Returns the entry's
  /// shape. Allocates memory only while there are new keys.
  EntryShape* learn(EntryShape* before, const uint8_t* p, const uint8_t* end, uint64_t key_hash, int32_t key);

 private:
  EntryShape* nothing() noexcept { return &shapes_[1]; }

  std::vector<RequestedKey> keys_;
  std::deque<EntryShape> shapes_;                    // the start, a shape that never matches, then the shapes seen
  std::vector<std::array<EntryShape*, 2>> of_hash_;  // by the key's hash; the shape learned last comes first
};

}  // namespace feedline::flow
