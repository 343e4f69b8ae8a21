#include "gpu/reduction.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "gpu/dispatch.h"

namespace feedline::gpu {
namespace {

constexpr size_t some = 1024;  // elements that are reduced at once, in the first-level cache

// What a type is computed in.
template <typename T>
struct computed {
  using type = T;
};
template <>
struct computed<Half> {
  using type = float;
};
template <>
struct computed<BFloat> {
  using type = float;
};

struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));  // wraps
    else
      return a + b;
  }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

template <typename T, typename Combine>
void reduce_as(std::span<const std::byte* const> from, size_t elements, std::byte* to, Combine combine) {
  using Computed = typename computed<T>::type;
  T stored[some];
  Computed result[some];
  for (size_t first = 0; first < elements; first += some) {
    const size_t n = std::min(some, elements - first);
    for (size_t rank = 0; rank < from.size(); rank++) {
      std::memcpy(stored, from[rank] + first * sizeof(T), n * sizeof(T));
      if (rank == 0)
        for (size_t i = 0; i < n; i++) result[i] = cast<Computed>(stored[i]);
      else
        for (size_t i = 0; i < n; i++) result[i] = combine(result[i], cast<Computed>(stored[i]));
    }
    for (size_t i = 0; i < n; i++) stored[i] = cast<T>(result[i]);
    std::memcpy(to + first * sizeof(T), stored, n * sizeof(T));
  }
}

template <typename T>
void reduce_as(std::span<const std::byte* const> from, Reduction reduction, size_t elements, std::byte* to) {
  switch (reduction) {
    case Reduction::sum:
      return reduce_as<T>(from, elements, to, Sum());
    case Reduction::min:
      return reduce_as<T>(from, elements, to, Min());
    case Reduction::max:
      return reduce_as<T>(from, elements, to, Max());
  }
}

}  // namespace

void reduce(std::span<const std::byte* const> from, DType dtype, Reduction reduction, size_t elements, std::byte* to) {
  with_type(dtype, [&](auto type) {
    using T = typename decltype(type)::t;
    if constexpr (!std::is_same_v<T, Bool>) reduce_as<T>(from, reduction, elements, to);
  });
}

}  // namespace feedline::gpu
