// The same answer everywhere: code that computes runs under the default floating-point environment (round to nearest,
// subnormals kept), whatever the program that embeds us has set for its own threads.
#pragma once

#include <cfenv>

namespace feedline {

/// While it lives, this thread computes by IEEE 754's defaults; then as before.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() noexcept {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&before_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace feedline
