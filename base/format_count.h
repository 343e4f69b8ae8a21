// Numbers for people: with commas, and with a noun.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace feedline {

/// Returns the number with a comma before every three digits: "1,234,567".
std::string format_count(uint64_t number);
/// Returns the number with `noun`: "1 step" or "1,234 steps". The noun gets an "s" unless the number is 1.
std::string format_count(uint64_t number, std::string_view noun);

}  // namespace feedline
