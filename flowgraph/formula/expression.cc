// A formula runs as a list of instructions over blocks of rows (formula_blocks.h). Each instruction reads registers and
// writes another register.
//
// Integer operations note in one word whether any row of the block failed. Failures are rare. A failure does not count
// if it is in an operand at which `if`, `and` or `or` do not look. So a block with a failure is evaluated again row by
// row, looking only at the operands that decide.
#include "flowgraph/formula/expression.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "flowgraph/formula/formula.h"
#include "flowgraph/formula/formula_blocks.h"

namespace feedline::flow {
namespace {

constexpr uint32_t block_rows = formula_block_rows;
// A tree of n leaves needs at most about 2 log3 n registers (the worst case is nested `if`); formulas have at most
// 32768 leaves.
constexpr int most_registers = 24;

struct Instruction {
  Op op = Op::constant;
  uint8_t to = 0;        // number of the register that it writes
  uint8_t from[3] = {};  // numbers of the registers that it reads
  int input = -1;        // Op::input: number of the input
  Scalar value;          // Op::constant: the value
};

// Turns the tree into instructions. The operand that needs the most registers comes first (Sethi and Ullman, 1970).
class Emitter {
 public:
  explicit Emitter(const Formula& formula) : formula_(formula), need_(formula.nodes.size()) {
    for (size_t n = 0; n < formula.nodes.size(); n++) {
      const Node& node = formula.nodes[n];
      int held = 0;
      for (int arg : by_need(node)) need_[n] = std::max(need_[n], need_[static_cast<size_t>(arg)] + held++);
      need_[n] = std::max(need_[n], held + 1);
    }
    free_.fill(true);
  }

  std::vector<Instruction> emit() {
    emit(formula_.root);
    return std::move(instructions_);
  }

 private:
  std::vector<int> by_need(const Node& node) const {
    std::vector<int> args(node.args, node.args + node.arity);
    std::stable_sort(args.begin(), args.end(),
                     [&](int a, int b) { return need_[static_cast<size_t>(a)] > need_[static_cast<size_t>(b)]; });
    return args;
  }
  uint8_t take() {
    const auto it = std::find(free_.begin(), free_.end(), true);
    assert(it != free_.end());
    *it = false;
    return static_cast<uint8_t>(it - free_.begin());
  }
  uint8_t emit(int number) {
    const Node& node = formula_.nodes[static_cast<size_t>(number)];
    Instruction instruction;
    instruction.op = node.op;
    instruction.input = node.input;
    instruction.value = node.value;
    for (int arg : by_need(node)) {
      const uint8_t at = emit(arg);
      for (uint8_t k = 0; k < node.arity; k++)
        if (node.args[k] == arg) instruction.from[k] = at;
    }
    instruction.to = take();  // a register of its own, so that loops never read what they write
    for (uint8_t k = 0; k < node.arity; k++) free_[instruction.from[k]] = true;
    instructions_.push_back(instruction);
    return instruction.to;
  }

  const Formula& formula_;
  std::vector<int> need_;  // by node: how many registers its tree takes
  std::array<bool, most_registers> free_{};
  std::vector<Instruction> instructions_;
};

// Evaluates one row, looking only at the operands that decide.
Scalar evaluate_row(const Formula& formula, int number, std::span<const Program::Column> inputs, uint32_t row,
                    uint64_t& failed) {
  const Node& node = formula.nodes[static_cast<size_t>(number)];
  const auto arg = [&](int k) { return evaluate_row(formula, node.args[k], inputs, row, failed); };
  Scalar args[3];
  switch (node.op) {
    case Op::constant:
      return node.value;
    case Op::input:
      std::memcpy(&args[0],
                  static_cast<const std::byte*>(inputs[static_cast<size_t>(node.input)].values) + row * size_t{8}, 8);
      return args[0];
    case Op::if_int:
    case Op::if_float:
      return arg(arg(0).as<int64_t>() != 0 ? 1 : 2);
    case Op::and_:
    case Op::or_:
      args[0] = arg(0);
      if ((args[0].as<int64_t>() != 0) == (node.op == Op::or_)) return Scalar::of(int64_t{node.op == Op::or_});
      return Scalar::of(int64_t{arg(1).as<int64_t>() != 0});
    default:
      for (int k = 0; k < node.arity; k++) args[k] = arg(k);
      return apply(node.op, args, failed);
  }
}

// Replaces each NaN by the same NaN, because CPUs differ in the sign and the payload of a NaN that arithmetic makes.
void make_canonical(std::byte* numbers, uint32_t count) noexcept {
  auto* const values = reinterpret_cast<double*>(numbers);
  for (uint32_t i = 0; i < count; i++)
    values[i] = std::isnan(values[i]) ? std::numeric_limits<double>::quiet_NaN() : values[i];
}

}  // namespace

struct Program::Impl {
  Formula formula;
  std::vector<Instruction> instructions;
  Type type = Type::float64;

  // Evaluates the formula for `rows` rows from row `first` on. Returns whether any row failed. The values are then in
  // the register that the last instruction writes.
  bool run(std::span<const Column> inputs, uint32_t first, uint32_t rows,
           std::span<FormulaBlock, most_registers> registers) const {
    uint64_t failed = 0;
    for (const Instruction& instruction : instructions) {
      FormulaBlock& to = registers[instruction.to];
      if (instruction.op == Op::input) {
        const auto* values = static_cast<const std::byte*>(inputs[static_cast<size_t>(instruction.input)].values);
        std::memcpy(to.rows, values + first * size_t{8}, rows * size_t{8});
        // Pads the block with copies of its last row, so that the padding fails only if that row does.
        std::fill(to.as<uint64_t>() + rows, to.as<uint64_t>() + block_rows, to.as<uint64_t>()[rows - 1]);
      } else if (instruction.op == Op::constant) {
        std::fill_n(to.as<uint64_t>(), block_rows, instruction.value.bits);
      } else {
        const std::array from = {&registers[instruction.from[0]], &registers[instruction.from[1]],
                                 &registers[instruction.from[2]]};
        run_block(instruction.op, to, from, failed);
      }
    }
    return failed != 0;
  }
};

Program Program::compile(std::string_view formula, const std::map<std::string, double>& constants,
                         std::span<const Input> known) {
  auto impl = std::make_shared<Impl>();
  impl->formula = parse_formula(formula, constants, known);
  impl->instructions = Emitter(impl->formula).emit();
  impl->type = impl->formula.nodes[static_cast<size_t>(impl->formula.root)].type;
  Program program;
  program.impl_ = std::move(impl);
  return program;
}

const std::vector<Program::Input>& Program::inputs() const noexcept { return impl_->formula.inputs; }
Program::Type Program::type() const noexcept { return impl_->type; }

uint32_t Program::evaluate(std::span<const Column> inputs, uint32_t rows, void* out) const noexcept {
  std::array<FormulaBlock, most_registers> registers;
  auto* const values = static_cast<std::byte*>(out);
  for (uint32_t first = 0; first < rows; first += block_rows) {
    const uint32_t count = std::min(block_rows, rows - first);
    if (impl_->run(inputs, first, count, registers)) {
      for (uint32_t i = 0; i < count; i++) {
        uint64_t failed = 0;
        const Scalar value = evaluate_row(impl_->formula, impl_->formula.root, inputs, first + i, failed);
        if (failed) return first + i;
        std::memcpy(values + (first + i) * size_t{8}, &value.bits, 8);
        if (type() == Type::float64) make_canonical(values + (first + i) * size_t{8}, 1);
      }
      continue;
    }
    FormulaBlock& result = registers[impl_->instructions.back().to];
    std::memcpy(values + first * size_t{8}, result.rows, count * size_t{8});
    if (type() == Type::float64) make_canonical(values + first * size_t{8}, count);
  }
  return no_failure;
}

}  // namespace feedline::flow
