// Computes the parameters of each channel of a spec, and the output values of single bits and bytes.
#pragma once

#include <cstring>

#include "unpack/dispatch.h"
#include "unpack/element.h"
#include "unpack/unpack_spec.h"

namespace feedline::unpack {

inline ChannelMath steps_of(const UnpackSpec& spec, int64_t channel) {
  const auto pick = [channel](const std::vector<float>& values, float& value) {
    if (!values.empty()) value = values[values.size() == 1 ? 0 : channel];
  };
  ChannelMath steps;
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

/// Computes the output element, of type spec.out, that a field of one bit gives in `channel` if it has the value `bit`,
/// and writes it to `to`.
inline void put_bit_value(const UnpackSpec& spec, int64_t channel, uint32_t bit, void* to) {
  with_type(spec.out, [&](auto type) {
    using Out = typename decltype(type)::t;
    const ChannelMath steps = steps_of(spec, channel);
    const Out value = spec.sign_extend ? apply<Out>(steps, sign_extended(bit, 1)) : apply<Out>(steps, bit);
    std::memcpy(to, &value, sizeof(value));
  });
}

/// Computes the output element, of type spec.out, that the stored byte `byte` gives in `channel`, and writes it to
/// `to`. Precondition: spec.stored is a type of one byte.
inline void put_byte_value(const UnpackSpec& spec, int64_t channel, uint8_t byte, void* to) {
  with_type(spec.stored, [&](auto stored) {
    using From = typename decltype(stored)::t;
    if constexpr (sizeof(From) == 1)
      with_type(spec.out, [&](auto type) {
        using Out = typename decltype(type)::t;
        const auto value = apply<Out>(steps_of(spec, channel), __builtin_bit_cast(From, byte));
        std::memcpy(to, &value, sizeof(value));
      });
  });
}

}  // namespace feedline::unpack
