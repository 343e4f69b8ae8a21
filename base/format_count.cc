#include "base/format_count.h"

#include <fmt/format.h>

namespace feedline {

std::string format_count(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t place = text.size(); place > 3;) text.insert(place -= 3, 1, ',');
  return text;
}

std::string format_count(uint64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", format_count(number), noun, number == 1 ? "" : "s");
}

}  // namespace feedline
