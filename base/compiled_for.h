// Compiles a function once for each SIMD level, so that the compiler vectorises its loops for that level.
#pragma once

#include "base/machine.h"

namespace feedline {

/// Has one copy of `function` for each SIMD level. Everything that `function` calls is inlined into the copies.
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

/// Returns the copy of `function` that is compiled for `level`. For example, compiled_for<sum>(simd_level())(values)
/// calls sum(values). The CPU must have this level. The definition of `function` must be visible, and its arguments
/// must be numbers, pointers or references.
template <auto function>
constexpr auto compiled_for(SimdLevel level) {
  return compiled_for<function>(function, level);
}

}  // namespace feedline
