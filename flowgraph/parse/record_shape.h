// Recognises whole records that are alike.
//
// If a record is parsed entry by entry, the offset of an entry follows from the lengths before it, so a CPU cannot work
// on two entries at a time. But records of one size mostly have all their lengths alike, too. Then every offset is
// known before anything is read. It only remains to check that the bytes between the payloads are the learned ones, and
// to store the payloads.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "flowgraph/parse/record_layout.h"

namespace feedline::flow {

struct RecordShape {
  /// 8 bytes that every record of this shape has.
  struct KnownBytes {
    uint32_t at;
    uint64_t bytes;
  };
  struct Value {
    uint32_t at;
    uint32_t size;
    EntryShape::Use use;
  };

  uint32_t size = 0;              // bytes of the record
  std::vector<KnownBytes> known;  // they cover all bytes but the payloads; empty: no shape is known
  std::vector<Value> values;      // the payloads that are wanted: at least one for every feature

  /// Returns whether the record has this shape. Precondition: the record has `size` bytes.
  bool matches(const uint8_t* record) const noexcept {
    for (const KnownBytes& eight : known)
      if (load<uint64_t>(record + eight.at) != eight.bytes) return false;
    return true;
  }
  /// Stores the values of a record that matches into row `row` of their columns. Returns false if an int64 is
  /// not exactly one varint; then the row is unspecified.
  bool store(const uint8_t* record, uint32_t row) const noexcept {
    for (const Value& value : values)
      if (!value.use.store(record + value.at, value.size, row)) return false;
    return true;
  }
};

/// The learned shapes of records: a cache with one shape for each size mod `buckets`.
class RecordShapes {
 public:
  /// Returns the shape of this record, or null if the shape is not known.
  const RecordShape* of(const uint8_t* record, uint32_t size) const noexcept {
    const RecordShape& shape = buckets_[size % buckets].shape;
    return shape.size == size && !shape.known.empty() && shape.matches(record) ? &shape : nullptr;
  }

  /// Learns the shape of a record for which of() has found none. Does so only if `layout` knows all entries of the
  /// record, no entry needs Action::think, and the entries together have all bits of `wanted` (RequestedKey::bit).
  /// Tries this only if the same size comes again, and ever more rarely, because there may be many sizes, and many
  /// shapes of one size. Allocates memory only while shapes grow.
  void learn(RecordLayout& layout, const uint8_t* record, uint32_t size, uint64_t wanted);

 private:
  // If only varints change the size of records, there are a few sizes. Records with pictures have any size, so that
  // different sizes share a bucket.
  static constexpr size_t buckets = 16;
  struct Bucket {
    uint32_t last_size = 0;  // size of the last record in this bucket that had no shape
    uint32_t tries = 0;
    RecordShape shape;
  };
  std::array<Bucket, buckets> buckets_;
};

}  // namespace feedline::flow
