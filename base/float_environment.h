// Sets the default floating-point environment: rounding to nearest, without flushing subnormals to zero.
//
// feedline computes in this environment so that its results are the same everywhere, whatever environment the program
// has set for its own threads.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace feedline {

/// While an object of this class lives, the thread that made it computes with the defaults of IEEE 754. The destructor
/// restores the thread's former environment.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

#if defined(__SSE2__)
  // Sets only MXCSR, which controls SSE. fesetenv() would also set the x87 unit, which takes 100 ns and which nothing
  // in this library uses.
  DefaultFloatEnvironment() noexcept { _mm_setcsr(0x1f80); }
  ~DefaultFloatEnvironment() { _mm_setcsr(before_); }

 private:
  const unsigned before_ = _mm_getcsr();
#else
  DefaultFloatEnvironment() noexcept {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
#endif
};

}  // namespace feedline
