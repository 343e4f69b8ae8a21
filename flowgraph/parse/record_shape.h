// Records that are alike as a whole.
//
// Entry by entry, each place in a record follows from the lengths before it, and a CPU waits for one to begin the next. Records of
// one size mostly have all their lengths alike, too: then every place is known before anything is read. What is left is
// to see that the bytes between the payloads are those that were learned, and to put the payloads where they go.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "flowgraph/parse/record_layout.h"

namespace feedline::flow {

struct RecordShape {
  struct Word {
    uint32_t at;
    uint64_t learned;
  };
  struct Value {
    uint32_t at;
    uint32_t size;
    EntryShape::Use use;
  };

  uint32_t size = 0;          // of the record
  std::vector<Word> words;    // all bytes but the payloads; none: no shape is known
  std::vector<Value> values;  // the payloads that are wanted: at least one of every feature

  /// Precondition: the record is `size` bytes.
  bool matches(const uint8_t* record) const noexcept {
    for (const Word& word : words)
      if (wire::load<uint64_t>(record + word.at) != word.learned) return false;
    return true;
  }
  /// Puts the values of a record that matches into their columns. False: one is not as it should be.
  bool store(const uint8_t* record, uint32_t row) const noexcept {
    for (const Value& value : values)
      if (!value.use.store(record + value.at, value.size, row)) return false;
    return true;
  }
};

/// The shapes of records, by size.
class RecordShapes {
 public:
  /// The shape of this record, or null.
  const RecordShape* of(const uint8_t* record, uint32_t size) const noexcept {
    const RecordShape& shape = slots_[size % slots].shape;
    return shape.size == size && !shape.words.empty() && shape.matches(record) ? &shape : nullptr;
  }

  /// Learns the shape of a record that had none, if `layout` knows all its entries, none takes thought, and all of
  /// `wanted` (RequestedKey::bit) are among them. Only if its size comes again, and ever more rarely: sizes may be
  /// many, and so may shapes of a size. Allocates only while shapes grow.
  void learn(RecordLayout& layout, const uint8_t* record, uint32_t size, uint64_t wanted);

 private:
  static constexpr size_t slots = 16;  // numbers of different widths make a few sizes, pictures any
  struct Slot {
    uint32_t last_size = 0;  // that had no shape
    uint32_t tries = 0;
    RecordShape shape;
  };
  std::array<Slot, slots> slots_;
};

}  // namespace feedline::flow
