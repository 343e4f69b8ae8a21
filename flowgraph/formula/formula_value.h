// The types of a formula's values, and the names that it may use.
#pragma once

#include <cstdint>
#include <string>

namespace feedline::flow {

enum class FormulaType : uint8_t { int64, float64 };

struct FormulaInput {
  std::string name;  // "s", "out.mate"
  FormulaType type = FormulaType::float64;
};

}  // namespace feedline::flow
