// Cuts the data of a reduction into slices, of which each rank reduces one.
#pragma once

#include <cstddef>
#include <span>

#include "feedline/tensor.h"

namespace feedline {

/// Returns the slice of `data` that `rank` of `ranks` ranks reduces. The slices are whole elements, lie one after
/// another in the order of the ranks, and differ in size by at most one element.
inline std::span<std::byte> slice_of(const TensorView& data, int rank, int ranks) {
  const auto elements = static_cast<size_t>(data.shape.elements()), all = static_cast<size_t>(ranks);
  const auto begin_of = [&](int r) { return elements * static_cast<size_t>(r) / all * size_of(data.dtype); };
  return {static_cast<std::byte*>(data.data) + begin_of(rank), begin_of(rank + 1) - begin_of(rank)};
}

}  // namespace feedline
