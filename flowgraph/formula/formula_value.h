// The types of a formula's values, and the names that a formula may use.
#pragma once

#include <cstdint>
#include <string>

namespace feedline::flow {

enum class FormulaType : uint8_t { int64, float64 };

struct FormulaInput {
  std::string name;  // such as "s" or "out.mate"
  FormulaType type = FormulaType::float64;
  bool offered = true;  // whether messages name it to a user who has written an unknown name
};

}  // namespace feedline::flow
