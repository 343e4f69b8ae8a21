// The arithmetic of a reduction over ranks for one element. It gives the same bits on the host and on GPUs.
#pragma once

#include <type_traits>

#include "feedline/reduction.h"
#include "feedline/tensor.h"
#include "unpack/dispatch.h"

namespace feedline::gpu {

/// The type in which elements of type T are computed: float for the 16-bit floats, else T itself.
template <typename T>
struct computed {
  using type = T;
};
template <>
struct computed<unpack::Half> {
  using type = float;
};
template <>
struct computed<unpack::BFloat> {
  using type = float;
};
template <typename T>
using computed_t = typename computed<T>::type;

struct Sum {
  template <typename T>
  FEEDLINE_ELEMENT T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));  // wraps around
    else
      return a + b;
  }
};
struct Min {
  template <typename T>
  FEEDLINE_ELEMENT T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  FEEDLINE_ELEMENT T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

/// Calls f(unpack::type<T>{}, Sum{}), or f with Min or Max, as `reduction` says. Does nothing for BOOL, which has no
/// reductions.
template <typename F>
void with_reduction(DType dtype, Reduction reduction, F&& f) {
  unpack::with_type(dtype, [&](auto type) {
    if constexpr (!std::is_same_v<typename decltype(type)::t, unpack::Bool>) {
      switch (reduction) {
        case Reduction::sum:
          return f(type, Sum());
        case Reduction::min:
          return f(type, Min());
        case Reduction::max:
          return f(type, Max());
      }
    }
  });
}

}  // namespace feedline::gpu
