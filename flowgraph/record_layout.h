// What the entries of a map<string, Feature> look like, learned from the records themselves.
//
// Writers put the same keys into every record, in the same order, and most values have the same size or shift only the
// lengths around them. So an entry is foreseen from the one before it, and is the foreseen one if its header
//
//     0a LENGTH  0a KEYLENGTH key  12 LENGTH  KIND LENGTH  0a LENGTH | payload
//
// has the learned bytes, all lengths shifted by as much as the first. That takes a few 8-byte compares; where it fails,
// the general parser reads the entry and the layout learns it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "flowgraph/wire.h"

namespace feedline::flow {

/// Kinds of a Feature: the field numbers of its oneof.
enum class ListKind : uint8_t { unset = 0, bytes = 1, float32 = 2, int64 = 3 };

/// A key that is asked for, as far as its entries may be foreseen.
struct RequestedKey {
  ListKind kind = ListKind::unset;  // unset: never, several features take its values
  uint64_t payload = any_size;      // the only size of a bytes value or of a run of floats that can be right
  static constexpr uint64_t any_size = ~uint64_t{0};
};

/// How an entry looked that was seen before.
struct EntryShape {
  enum class Payload : uint8_t {
    value,      // of a feature nobody asked for: the whole Feature
    nothing,    // a Feature without a kind
    bytes,      // one bytes value
    floats,     // one packed run of floats
    one_float,  // one that is not packed
    varints,    // one packed run of int64
    varint,     // one int64 that is not packed
  };
  static constexpr uint32_t max_header = 64;
  static constexpr uint32_t never = ~uint32_t{0};

  uint32_t header = never;   // bytes before the payload, 8 to max_header; never: nothing has this shape
  uint32_t payload = 0;      // bytes of it when it was learned
  uint32_t max_payload = 0;  // more (or, as unsigned, fewer than 0) do not have this shape
  uint8_t length = 0;        // the second byte when it was learned
  Payload kind = Payload::value;
  std::array<uint16_t, 2> next = {};  // shapes that followed it, the last one first
  int32_t key = -1;                   // number of the requested key, or -1
  // The header in words, the last one overlapping the one before. By word form, a 1 in each byte that shifts with
  // `length`; by long form, 0xff in each byte that is not of a length.
  uint64_t first = 0, first_mask = 0, last = 0, last_mask = 0;
  std::array<uint64_t, max_header / 8 - 1> middle{}, middle_mask{};
  // The long form, for lengths of two bytes and more: each length, by itself.
  struct Length {
    uint8_t end = 0;    // bytes of the header up to its end
    uint8_t width = 0;  // bytes it has, at most 4
    uint16_t less = 0;  // how much less than the first one it is
  };
  uint8_t lengths = 0;  // 0: word form
  std::array<Length, 4> length_at{};
  uint64_t key_hash = 0;

  /// The payload of the entry at p and its size, or nullptr if the entry has another shape or ends behind `end`.
  /// Precondition: two bytes before p may be read; an entry of an Example has as many in front of it.
  const uint8_t* match(const uint8_t* p, const uint8_t* end, uint32_t& size) const noexcept {
    if (static_cast<uint64_t>(end - p) < header) return nullptr;
    if (lengths != 0) return match_long(p, end, size);
    const int64_t shift = int64_t{p[1]} - length;
    const auto differs = [&](uint32_t at, uint64_t learned, uint64_t mask) {
      return wire::load<uint64_t>(p + at) != learned + static_cast<uint64_t>(shift) * mask;
    };
    if (differs(0, first, first_mask) || differs(header - 8, last, last_mask)) return nullptr;
    for (uint32_t i = 0; 8 * i + 16 < header; i++) {
      if (differs(8 * i + 8, middle[i], middle_mask[i])) return nullptr;
    }
    // Shifted words are what they should be only as long as every length stays between 0 and 127: the first is the
    // greatest, the payload's the smallest.
    size = static_cast<uint32_t>(payload + shift);
    if (size > max_payload) return nullptr;
    const uint8_t* begin = p + header;
    return size <= static_cast<uint64_t>(end - begin) ? begin : nullptr;
  }

 private:
  const uint8_t* match_long(const uint8_t* p, const uint8_t* end, uint32_t& size) const noexcept;
};

/// The shapes seen so far, and what followed what. A bounded number of them: rare ones make room. Wrong guesses cost
/// time only.
class RecordLayout {
 public:
  explicit RecordLayout(std::vector<RequestedKey> keys);

  /// What comes before the first entry.
  static constexpr uint16_t start = 0;
  const EntryShape& operator[](uint16_t shape) const noexcept { return shapes_[shape]; }

  /// The entry [p, end) with this key came after `before` and was not foreseen. Learns it where it is in the usual form
  /// and returns its number. key: number of the requested key, or -1. Allocates only while there are new keys.
  uint16_t learn(uint16_t before, const uint8_t* p, const uint8_t* end, uint64_t key_hash, int32_t key);

 private:
  static constexpr uint16_t nothing = 1;

  std::vector<RequestedKey> keys_;
  std::vector<EntryShape> shapes_;                // 0: the start; 1: what never comes; then those seen
  std::vector<std::array<uint16_t, 2>> of_hash_;  // by the key's hash: shapes, the one learned last first; 0: none
};

}  // namespace feedline::flow
