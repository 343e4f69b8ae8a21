#include "base/byte_size.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "feedline/error.h"

namespace feedline {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double bytes;
};
constexpr std::array<Unit, 10> units = {{{"", 1},
                                         {"b", 1},
                                         {"kb", 1e3},
                                         {"mb", 1e6},
                                         {"gb", 1e9},
                                         {"tb", 1e12},
                                         {"kib", 1024.0},
                                         {"mib", 1048576.0},
                                         {"gib", 1073741824.0},
                                         {"tib", 1099511627776.0}}};

}  // namespace

uint64_t parse_byte_size(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error == std::errc() && number >= 0) {
    std::string unit;
    for (const char* c = rest; c != end; c++)
      if (*c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    for (const Unit& candidate : units) {
      const double bytes = number * candidate.bytes;
      if (unit == candidate.name && bytes < 0x1p62 && bytes == std::floor(bytes)) return static_cast<uint64_t>(bytes);
    }
  }
  throw Error(
      Category::bad_pipeline,
      fmt::format("'{}' is not a whole number of bytes from 0 to 2^62 - 1; write a number and a unit up to TiB, as "
                  "in 4096, 256KiB, 1.5GiB or 100MB",
                  text));
}

std::string format_byte_size(uint64_t bytes) {
  constexpr std::array names = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < names.size()) {
    value /= 1024;
    unit++;
  }
  const double rounded = std::round(value * 10) / 10;
  return rounded == std::floor(rounded) ? fmt::format("{:.0f} {}", rounded, names[unit])
                                        : fmt::format("{:.1f} {}", rounded, names[unit]);
}

}  // namespace feedline
