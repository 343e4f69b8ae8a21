// Reads the message FeatureList: the steps of a feature of a SequenceExample.
//
// message FeatureList { repeated Feature feature = 1; }   (tensorflow/core/example/feature.proto)
//
// Each Feature is a step. Writers give all steps of a list the same form, so steps in the usual form are read in a loop
// of their own, which decodes the three nested lengths of a step at once.
#pragma once

#include <cstdint>
#include <optional>

#include "flowgraph/parse/feature_message.h"

namespace feedline::flow {

/// Stands for the number of values that a step must have, if any number is allowed.
inline constexpr uint64_t any_count = ~uint64_t{0};

/// The steps of one feature that were found in a record so far.
struct FoundSteps {
  // Sets member by member: GCC would clear all of the object first, which takes longer than adding some steps.
  FoundSteps(ListKind kind, uint64_t values_of_step, uint64_t bytes)
      : wanted(kind), step_values(values_of_step), length(bytes) {}

  ListKind wanted;
  uint64_t step_values;  // values that each step must have, or any_count
  uint64_t length;       // bytes that each bytes value must have, or any_length
  void* values = nullptr;
  uint64_t capacity = 0;  // values
  /// For each step, the number of values in this step and those before it; null: these numbers are not wanted. There is
  /// room for `most_steps` steps.
  uint32_t* ends = nullptr;
  uint64_t most_steps = any_count;

  uint64_t count = 0;  // the values of all steps; those beyond `capacity` are not stored
  uint64_t steps = 0;  // the steps beyond `most_steps` have no element of `ends`
  /// The first step that is not as it must be. The values of the steps after it are not stored, and not counted.
  struct WrongStep {
    uint64_t number = 0;
    ListKind found = ListKind::unset;
    uint64_t count = 0;
    uint64_t other_length = any_length;  // bytes of the first value whose length is not `length`, if there is one
  };
  std::optional<WrongStep> wrong;
};

/// Adds the number of steps in the FeatureList [p, end) to `steps`. `depth` is how many levels of messages may still be
/// opened inside the list. Returns null, or the position at which protobuf would refuse the fields of the list itself.
const uint8_t* count_steps(const uint8_t* p, const uint8_t* end, int depth, uint64_t& steps);

/// Adds the steps of the FeatureList [p, end) to `found`. `depth` is how many levels of messages may still be opened
/// inside the list. Returns null, or the position at which protobuf would refuse the bytes. Precondition: the 6 bytes
/// before `p` may be read. In the entry of a map, 6 bytes or more precede the list.
const uint8_t* add_steps(const uint8_t* p, const uint8_t* end, int depth, FoundSteps& found);

}  // namespace feedline::flow
