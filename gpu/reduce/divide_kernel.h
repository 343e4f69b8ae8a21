// Divides a sum of gradients to get their mean, in float32, and finds out whether every element is finite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "unpack/dispatch.h"

namespace feedline::gpu {

/// The arguments of a division: out[i] = in[i] / divisor.
struct DivideArgs {
  const std::byte* in;  // [elements]
  float* out;           // [elements]
  float divisor;
  int32_t* finite;  // one number, which is set to 0 if any quotient is infinite or NaN
  uint64_t elements;
};
struct DivideLaunch {
  DivideArgs args;
  DType dtype;  // the dtype of `in`: FLOAT32, FLOAT16 or BFLOAT16
};

template <typename T>
FEEDLINE_ELEMENT float divided(const DivideArgs& args, uint64_t element) {
  return unpack::cast<float>(reinterpret_cast<const T*>(args.in)[element]) / args.divisor;
}
FEEDLINE_ELEMENT bool is_finite(float value) { return value - value == 0; }

/// Does the work of one GPU thread: element number `thread`.
template <typename T>
FEEDLINE_ELEMENT void divide_thread(const DivideArgs& args, uint64_t thread) {
  const float quotient = divided<T>(args, thread);
  args.out[thread] = quotient;
  if (!is_finite(quotient)) *args.finite = 0;
}

/// Calls f(unpack::type<T>{}) with the element type of a dtype that gradients may have: FLOAT32, FLOAT16 or BFLOAT16.
template <typename F>
void with_gradient_type(DType dtype, F&& f) {
  if (dtype == DType::float32)
    f(unpack::type<float>());
  else if (dtype == DType::float16)
    f(unpack::type<unpack::Half>());
  else
    f(unpack::type<unpack::BFloat>());
}

}  // namespace feedline::gpu
