// How ranks' values become one.
#pragma once

#include <cstdint>

namespace feedline {

enum class Reduction : uint8_t { sum, min, max };

}  // namespace feedline
