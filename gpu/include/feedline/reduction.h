// The operations by which a reduction combines the values of all ranks into one. Communicator::all_reduce() says how
// they round, overflow and treat NaN.
#pragma once

#include <cstdint>

namespace feedline {

/// The operation of a reduction, element by element.
enum class Reduction : uint8_t { sum, min, max };

}  // namespace feedline
