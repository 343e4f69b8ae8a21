#include "tool/stats/sample_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tool/common/usage_error.h"

namespace feedline::tool {

uint64_t SampleSize::of(uint64_t all) const noexcept {
  // A product that is whole, as 7 % of 300, may be a little more in doubles, and must not be rounded up.
  constexpr double rounding = 1e-15;
  const double part = percent * static_cast<double>(all) / 100 * (1 - rounding);
  const uint64_t wanted = percent > 0 ? static_cast<uint64_t>(std::ceil(part)) : number;
  return std::clamp<uint64_t>(wanted, 1, all);
}

SampleSize parse_sample_size(const std::string& text, const std::string& option) {
  SampleSize size{.text = text};
  const char* const end = text.data() + text.size();
  if (text.ends_with('%')) {
    const auto [stop, error] = std::from_chars(text.data(), end - 1, size.percent);
    if (error == std::errc() && stop == end - 1 && size.percent > 0 && size.percent <= 100) return size;
  } else {
    const auto [stop, error] = std::from_chars(text.data(), end, size.number);
    if (error == std::errc() && stop == end && size.number > 0) return size;
  }
  throw UsageError(
      fmt::format("{}: '{}' is neither a number of records, such as 10000, nor a percentage of all "
                  "records, such as 1%",
                  option, text));
}

}  // namespace feedline::tool
