// Reduces over ranks on a GPU. The elements of the ranks lie in memory one rank after another.
#pragma once

#include <cstddef>

#include "gpu/reduce/reduction_ops.h"

namespace feedline::gpu {

/// The arguments of a reduction over ranks. `in` and `out` hold elements of type ReduceLaunch::dtype.
struct ReduceArgs {
  const std::byte* in;  // [ranks, elements]
  std::byte* out;       // [elements]; does not overlap `in`
  uint64_t ranks, elements;
};
struct ReduceLaunch {
  ReduceArgs args;
  DType dtype;
  Reduction reduction;
};

/// Does the work of one GPU thread: element number `thread`.
template <typename T, typename Combine>
FEEDLINE_ELEMENT void reduce_thread(const ReduceArgs& args, uint64_t thread) {
  const T* const in = reinterpret_cast<const T*>(args.in) + thread;
  computed_t<T> result = unpack::cast<computed_t<T>>(in[0]);
  for (uint64_t rank = 1; rank < args.ranks; rank++)
    result = Combine()(result, unpack::cast<computed_t<T>>(in[rank * args.elements]));
  reinterpret_cast<T*>(args.out)[thread] = unpack::cast<T>(result);
}

}  // namespace feedline::gpu
