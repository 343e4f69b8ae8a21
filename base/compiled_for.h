// Functions whose loops the compiler can vectorise are compiled once for each SIMD level.
#pragma once

#include "base/machine.h"

namespace feedline {

/// `function`, compiled once for each SIMD level, with all that it calls inlined. Only the members of this struct call
/// `function`.
template <auto function, typename Result, typename... Arguments>
struct Compiled {
  [[gnu::flatten]] static Result portable(Arguments... arguments) { return function(arguments...); }
#if defined(__x86_64__)
  [[gnu::flatten, gnu::target("arch=x86-64-v3")]] static Result avx2(Arguments... arguments) {
    return function(arguments...);
  }
  [[gnu::flatten, gnu::target("arch=x86-64-v4")]] static Result avx512(Arguments... arguments) {
    return function(arguments...);
  }
#endif
};

template <auto function, typename Result, typename... Arguments>
constexpr auto compiled_for(Result (*)(Arguments...), [[maybe_unused]] SimdLevel level) -> Result (*)(Arguments...) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return Compiled<function, Result, Arguments...>::avx512;
  if (level == SimdLevel::avx2) return Compiled<function, Result, Arguments...>::avx2;
#endif
  return Compiled<function, Result, Arguments...>::portable;
}

/// Returns `function` as it was compiled for `level`: compiled_for<sum>(simd_level())(values). The CPU must have this
/// level. The definition of `function` must be visible, and its arguments must be numbers, pointers or references.
template <auto function>
constexpr auto compiled_for(SimdLevel level) {
  return compiled_for<function>(function, level);
}

}  // namespace feedline
