// A parsed formula: a tree in a vector, in which every operation has one type. Internal to expression.h.
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
  int args[3] = {-1, -1, -1};  // numbers of nodes, each smaller than this node's number
  int depth = 1;               // depth of the tree under this node
  int input = -1;              // Op::input: index into Formula::inputs
  Scalar value;                // Op::constant: the value
};

struct Formula {
  std::vector<Node> nodes;  // some are unused if constants were folded
  int root = 0;
  std::vector<FormulaInput> inputs;
};

/// Parses a formula for Program::compile(), which describes the parameters and errors.
Formula parse_formula(std::string_view text, const std::map<std::string, double>& constants,
                      std::span<const FormulaInput> known);

/// The greatest depth that a formula's syntax tree may have. parse_formula() refuses deeper ones, so that walking a
/// tree cannot overflow the stack.
inline constexpr int deepest_formula = 1000;

}  // namespace feedline::flow
