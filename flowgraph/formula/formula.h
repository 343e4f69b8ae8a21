// A formula as read: a tree in a vector, every operation already of one type. Inside of expression.h.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flowgraph/formula/formula_value.h"
#include "flowgraph/formula/operation.h"

namespace feedline::flow {

struct Node {
  Op op = Op::constant;
  FormulaType type = FormulaType::float64;
  uint8_t arity = 0;
  int args[3] = {-1, -1, -1};  // numbers of nodes, smaller than its own
  int depth = 1;               // of the tree under it
  int input = -1;              // Op::input: number in Formula::inputs
  Scalar value;                // Op::constant
};

struct Formula {
  std::vector<Node> nodes;  // also ones that folding left without use
  int root = 0;
  std::vector<FormulaInput> inputs;
};

/// As Program::compile.
Formula parse_formula(std::string_view text, const std::map<std::string, double>& constants,
                      std::span<const FormulaInput> known);

/// Deeper trees are refused, so that walking one cannot overflow the stack.
inline constexpr int deepest_formula = 1000;

}  // namespace feedline::flow
