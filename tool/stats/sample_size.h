// How many samples to take, as people say it: "1000" or "1%".
#pragma once

#include <cstdint>
#include <string>

namespace feedline::tool {

/// A number of samples, or a part of all samples.
struct SampleSize {
  std::string text;  // as it was written
  uint64_t number = 0;
  double percent = 0;  // above 0 and at most 100; 0: `number` is used

  /// Returns the number of samples, at least 1 and at most `all`. A fraction is rounded up. Precondition: `all` > 0.
  uint64_t of(uint64_t all) const noexcept;
};

/// Throws UsageError, which names `option`, if the text has neither form, or asks for nothing or for more than 100 %.
SampleSize parse_sample_size(const std::string& text, const std::string& option);

}  // namespace feedline::tool
