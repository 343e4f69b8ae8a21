// Checks a spec and brings it to its simplest form.
#pragma once

#include <cstdint>
#include <vector>

#include "unpack/unpack_spec.h"

namespace feedline::unpack {

/// Throws Error bad_pipeline for a spec that makes no sense.
void validate(const UnpackSpec& spec);

struct Axis {
  int64_t length;
  int64_t stride;        // bits
  bool channel = false;  // whether each index has parameters or an offset of its own
};

/// The axes of a spec without those of length 1. Neighbouring axes are joined into one if their fields are evenly
/// spaced. There is at least one axis.
struct Layout {
  int64_t base = 0;                     // the bit of a row at which index 0 of all axes lies
  std::vector<Axis> axes;               // the outermost first
  std::vector<int64_t> channel_offset;  // bits, for each channel; empty if the channels are evenly spaced
  bool channel_steps = false;           // whether channels differ in their parameters

  /// Precondition: the spec is valid and has elements.
  explicit Layout(const UnpackSpec& spec);
};

}  // namespace feedline::unpack
