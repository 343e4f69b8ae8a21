// Numbers of things, as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace feedline {

/// Returns "1,234,567".
std::string format_count(uint64_t number);
/// Returns "1 step" or "1,234 steps": `noun` takes an s unless there is one.
std::string format_count(uint64_t number, std::string_view noun);

}  // namespace feedline
