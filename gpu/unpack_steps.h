// The parameters of a spec, channel by channel.
#pragma once

#include "gpu/element.h"
#include "gpu/unpack.h"

namespace feedline::gpu {

inline Steps steps_of(const UnpackSpec& spec, int64_t channel) {
  const auto pick = [channel](const std::vector<float>& values, float& value) {
    if (!values.empty()) value = values[values.size() == 1 ? 0 : channel];
  };
  Steps steps;
  steps.affine = !spec.scale.empty() || !spec.bias.empty();
  pick(spec.scale, steps.scale);
  pick(spec.bias, steps.bias);
  if (spec.normalize) {
    steps.normalize = true;
    steps.normalize_scale = spec.normalize->scale.value_or(1.0f);
    pick(spec.normalize->mean, steps.mean);
    pick(spec.normalize->std, steps.std);
  }
  return steps;
}

}  // namespace feedline::gpu
