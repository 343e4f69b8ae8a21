// What the entries of a map<string, Feature> look like, learned from the records themselves.
//
// Writers put the same keys into every record, in the same order, and most values have the same size or shift only the
// lengths around them. So an entry is predicted from the one before it, and is the predicted one if its header
//
//     0a LENGTH  0a KEYLENGTH key  12 LENGTH  KIND LENGTH  0a LENGTH | payload
//
// has the learned bytes, all lengths shifted by as much as the first. That takes a few 8-byte compares; where it fails,
// the general parser reads the entry and the layout learns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "flowgraph/parse/columns.h"
#include "flowgraph/parse/packed_varints.h"
#include "flowgraph/parse/wire.h"

namespace feedline::flow {

/// Kinds of a Feature: the field numbers of its oneof.
enum class ListKind : uint8_t { unset = 0, bytes = 1, float32 = 2, int64 = 3 };

/// A key that is asked for, as far as its entries may be predicted.
struct RequestedKey {
  static constexpr uint64_t any_size = ~uint64_t{0};

  ListKind kind = ListKind::unset;  // unset: never, several features take its values
  uint64_t payload = any_size;      // the only size of a bytes value or of a run of floats that can be right
  // Where a payload goes that needs no thought: one value in each row, or floats of one size. Null: none does.
  std::byte* column = nullptr;
  uint32_t row_size = 0;
  uint64_t bit = 0;  // to be set then
};

/// How an entry looked that was seen before.
struct alignas(64) EntryShape {
  enum class Payload : uint8_t {
    value,      // of a feature nobody asked for: the whole Feature
    nothing,    // a Feature without a kind
    bytes,      // one bytes value
    floats,     // one packed run of floats
    one_float,  // one that is not packed
    varints,    // one packed run of int64
    varint,     // one int64 that is not packed
  };
  /// What to do with the payload.
  enum class Action : uint8_t { skip, store_bytes, store_floats, store_int, think };
  static constexpr uint32_t max_header = 64;
  static constexpr uint32_t never = ~uint32_t{0};

  uint32_t header = never;   // bytes before the payload, 8 to max_header; never: see match_long()
  uint32_t payload = 0;      // bytes of it when it was learned
  uint32_t max_payload = 0;  // more (or, as unsigned, fewer than 0) do not have this shape
  uint8_t length = 0;        // the second byte when it was learned
  // The header in words, the last one overlapping the one before, and a 1 in each byte that shifts with `length`.
  uint64_t first = 0, first_mask = 0, last = 0, last_mask = 0;
  std::array<EntryShape*, 2> next = {};  // shapes that followed it, the last one first
  struct Use {
    Action action = Action::think;
    Payload kind = Payload::value;
    int32_t key = -1;             // number of the requested key, or -1
    std::byte* column = nullptr;  // as RequestedKey
    uint64_t bit = 0;
    uint32_t row_size = 0;

    /// What needs no thought. False: it is not as it should be, and nothing has changed that counts.
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
  // The long form, for lengths of two bytes and more: the masks have 0xff in each byte that is not of a length, and
  // each length stands by itself.
  struct Length {
    uint8_t end = 0;    // bytes of the header up to its end
    uint8_t width = 0;  // bytes it has, at most 4
    uint16_t less = 0;  // how much less than the first one it is
  };
  uint32_t long_header = never;
  uint32_t lengths = 0;
  std::array<Length, 4> length_at{};
  uint64_t key_hash = 0;

  /// The payload of the entry at p and its size, or nullptr if the entry has another shape or ends behind `end`.
  const uint8_t* match(const uint8_t* p, const uint8_t* end, uint32_t& size) const noexcept {
    if (static_cast<uint64_t>(end - p) < header) return nullptr;
    const uint32_t shift = uint32_t{p[1]} - length;
    const uint64_t shift64 = static_cast<uint64_t>(static_cast<int32_t>(shift));
    const auto differs = [&](uint32_t at, uint64_t learned, uint64_t mask) {
      return wire::load<uint64_t>(p + at) != learned + shift64 * mask;
    };
    const uint8_t* begin = p + header;
    if (differs(0, first, first_mask) || wire::load<uint64_t>(begin - 8) != last + shift64 * last_mask) return nullptr;
    for (uint32_t i = 0; 8 * i + 16 < header; i++) {
      if (differs(8 * i + 8, middle[i], middle_mask[i])) return nullptr;
    }
    // Shifted words are what they should be only as long as every length stays between 0 and 127: the first is the
    // greatest, the payload's the smallest.
    size = payload + shift;
    return size <= max_payload && size <= static_cast<uint64_t>(end - begin) ? begin : nullptr;
  }

  /// The same for the long form, which match() refuses.
  /// Precondition: two bytes before p may be read; an entry of an Example has as many in front of it.
  const uint8_t* match_long(const uint8_t* p, const uint8_t* end, uint32_t& size) const noexcept;
};

/// The shapes seen so far, and what followed what. A bounded number of them: rare ones make room. Wrong guesses cost
/// time only.
class RecordLayout {
 public:
  explicit RecordLayout(std::vector<RequestedKey> keys);

  /// What comes before the first entry.
  EntryShape* start() noexcept { return &shapes_[0]; }

  /// The entry [p, end) with this key came after `before` and was not predicted. Learns it where it is in the usual
  /// form. key: number of the requested key, or -1. Allocates only while there are new keys.
  EntryShape* learn(EntryShape* before, const uint8_t* p, const uint8_t* end, uint64_t key_hash, int32_t key);

 private:
  EntryShape* nothing() noexcept { return &shapes_[1]; }

  std::vector<RequestedKey> keys_;
  std::deque<EntryShape> shapes_;                    // the start, what never comes, then those seen
  std::vector<std::array<EntryShape*, 2>> of_hash_;  // by the key's hash: the one learned last first
};

}  // namespace feedline::flow
