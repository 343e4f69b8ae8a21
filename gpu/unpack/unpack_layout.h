// A spec checked and brought to its simplest form.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/unpack/unpack_spec.h"

namespace feedline::gpu {

/// Throws Error bad_pipeline for a spec that makes no sense.
void validate(const UnpackSpec& spec);

struct Axis {
  int64_t length;
  int64_t stride;        // bits
  bool channel = false;  // has parameters or offsets of its own for each index
};

/// The axes less those of length 1, neighbours joined where their fields lie evenly. At least one axis.
struct Layout {
  int64_t base = 0;  // bits
  std::vector<Axis> axes;
  std::vector<int64_t> channel_offset;  // bits; none where the channel axis's stride says it all
  bool channel_steps = false;           // channels differ in their parameters

  /// Precondition: the spec is valid and has elements.
  explicit Layout(const UnpackSpec& spec);
};

}  // namespace feedline::gpu
