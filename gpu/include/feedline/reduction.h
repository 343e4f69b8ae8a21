// How a reduction combines the ranks' values into one. See Communicator::all_reduce() for rounding, overflow and NaN.
#pragma once

#include <cstdint>

namespace feedline {

/// The operation of a reduction, element by element.
enum class Reduction : uint8_t { sum, min, max };

}  // namespace feedline
