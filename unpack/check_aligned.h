// Checks that addresses are aligned as a GPU demands, where the host runs the threads of a GPU's kernel.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "unpack/cast.h"

namespace feedline::unpack {

/// On the host, ends the program if the address `at` is not a multiple of `bytes`, unless NDEBUG is defined. On a GPU,
/// does nothing, because the GPU itself ends a kernel that uses such an address.
FEEDLINE_ELEMENT void check_aligned([[maybe_unused]] const std::byte* at, [[maybe_unused]] size_t bytes) {
#ifndef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) assert(reinterpret_cast<uintptr_t>(at) % bytes == 0);
#endif
}

}  // namespace feedline::unpack
