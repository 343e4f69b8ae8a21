#include "gpu/reduce/reduction.h"

#include <algorithm>
#include <cstring>

#include "gpu/reduce/reduction_ops.h"

namespace feedline::gpu {
namespace {

constexpr size_t some = 1024;  // how many elements are reduced at a time, so that they stay in the first-level cache

template <typename T, typename Combine>
void reduce_as(std::span<const std::byte* const> from, size_t elements, std::byte* to, Combine combine) {
  using Computed = computed_t<T>;
  T stored[some];
  Computed result[some];
  for (size_t first = 0; first < elements; first += some) {
    const size_t n = std::min(some, elements - first);
    for (size_t rank = 0; rank < from.size(); rank++) {
      std::memcpy(stored, from[rank] + first * sizeof(T), n * sizeof(T));
      if (rank == 0)
        for (size_t i = 0; i < n; i++) result[i] = unpack::cast<Computed>(stored[i]);
      else
        for (size_t i = 0; i < n; i++) result[i] = combine(result[i], unpack::cast<Computed>(stored[i]));
    }
    for (size_t i = 0; i < n; i++) stored[i] = unpack::cast<T>(result[i]);
    std::memcpy(to + first * sizeof(T), stored, n * sizeof(T));
  }
}

}  // namespace

void reduce(std::span<const std::byte* const> from, DType dtype, Reduction reduction, size_t elements, std::byte* to) {
  with_reduction(dtype, reduction,
                 [&](auto type, auto combine) { reduce_as<typename decltype(type)::t>(from, elements, to, combine); });
}

}  // namespace feedline::gpu
