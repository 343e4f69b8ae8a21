// Reads the message Feature.
//
// message Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
// message BytesList { repeated bytes value = 1; }   FloatList and Int64List have packed float and int64
// (tensorflow/core/example/feature.proto)
#pragma once

#include <cstdint>

#include "flowgraph/parse/columns.h"

namespace feedline::flow {

/// The kinds of a Feature: the field numbers of its oneof.
enum class ListKind : uint8_t { unset = 0, bytes = 1, float32 = 2, int64 = 3 };

/// Returns the size in bytes of a value in a column or in the arena.
inline uint32_t value_size(ListKind kind) noexcept {
  return kind == ListKind::bytes ? sizeof(BytesRef) : kind == ListKind::float32 ? sizeof(float) : sizeof(int64_t);
}

/// Stands for the length that values must have, if any length is allowed.
inline constexpr uint64_t any_length = ~uint64_t{0};

/// The values of one feature that were found in a record so far.
struct FoundValues {
  ListKind wanted = ListKind::unset;
  void* values = nullptr;
  uint64_t capacity = 0;
  uint64_t length = any_length;

  ListKind found = ListKind::unset;
  uint64_t count = 0;                  // the number of values found, including those beyond `capacity`
  uint64_t other_length = any_length;  // bytes of the first value whose length is not `length`, if there is one

  void restart(ListKind kind) {
    found = kind;
    count = 0;
    other_length = any_length;
  }
};

/// Adds the values of the message Feature in [p, end) to `found`. A list of a different kind discards the values found
/// so far, as protobuf does. Values that are not wanted are checked all the same. `depth` is how many levels of
/// messages may still be opened inside the Feature. Returns null, or the position at which protobuf would refuse the
/// bytes. Precondition: the 10 bytes before a run of int64 may be read (packed_varints.h). In all types of messages
/// that hold a Feature, these bytes are tags and lengths.
const uint8_t* add_feature(const uint8_t* p, const uint8_t* end, int depth, FoundValues& found);

}  // namespace feedline::flow
