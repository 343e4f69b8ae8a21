// What a GPU demands of addresses, checked where its threads run on the host.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "unpack/cast.h"

namespace feedline::unpack {

/// On the host, ends the program if the address is no multiple of `bytes`, unless NDEBUG is defined. On a GPU, which
/// ends a kernel that uses such an address, does nothing.
FEEDLINE_ELEMENT void check_aligned([[maybe_unused]] const std::byte* at, [[maybe_unused]] size_t bytes) {
#ifndef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) assert(reinterpret_cast<uintptr_t>(at) % bytes == 0);
#endif
}

}  // namespace feedline::unpack
