// The same answer everywhere: code that computes runs under the default floating-point environment (round to nearest,
// subnormals kept), whatever the program that embeds us has set for its own threads.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace feedline {

/// While it lives, this thread computes by IEEE 754's defaults; then as before.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

#if defined(__SSE2__)
  // MXCSR alone, not the x87 unit, which nothing here uses and which fesetenv takes 100 ns to set.
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
