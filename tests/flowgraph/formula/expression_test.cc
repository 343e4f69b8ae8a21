#include "flowgraph/formula/expression.h"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <random>

#include "base/machine.h"
#include "feedline/error.h"
#include "flowgraph/formula/elementary.h"
#include "flowgraph/formula/formula_ops.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::flow;
using Type = Program::Type;

namespace {

size_t allocations = 0;

constexpr int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
const double inf = std::numeric_limits<double>::infinity();
const double nan_ = std::numeric_limits<double>::quiet_NaN();

bool same(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

// The columns that formulas may use: i j k are int64, x y z and out.o are float64.
struct Data {
  std::vector<Program::Input> known = {{"i", Type::int64},      {"j", Type::int64},   {"k", Type::int64},
                                       {"x", Type::float64},    {"y", Type::float64}, {"z", Type::float64},
                                       {"out.o", Type::float64}};
  std::map<std::string, double> constants = {{"A", 0.95}, {"B", 60}};
  std::map<std::string, std::vector<int64_t>> whole;
  std::map<std::string, std::vector<double>> real;

  Program compile(const std::string& formula) const { return Program::compile(formula, constants, known); }
  std::vector<Program::Column> columns(const Program& program, size_t first = 0) const {
    std::vector<Program::Column> columns;
    for (const Program::Input& input : program.inputs()) {
      if (input.type == Type::int64)
        columns.push_back({whole.at(input.name).data() + first});
      else
        columns.push_back({real.at(input.name).data() + first});
    }
    return columns;
  }
};

// Evaluates a formula, and converts what is int64 to double.
uint32_t evaluate(const Program& program, std::span<const Program::Column> columns, uint32_t rows, double* out) {
  const uint32_t failed = program.evaluate(columns, rows, out);
  if (program.type() == Type::int64)
    for (uint32_t i = 0; i < std::min(failed, rows); i++) out[i] = static_cast<double>(std::bit_cast<int64_t>(out[i]));
  return failed;
}

// Returns the value of a formula for one row, or nothing if the row fails.
std::optional<double> value_of(const std::string& formula, const std::map<std::string, int64_t>& whole = {},
                               const std::map<std::string, double>& real = {}) {
  Data data;
  for (const auto& [name, value] : whole) data.whole[name] = {value};
  for (const auto& [name, value] : real) data.real[name] = {value};
  const Program program = data.compile(formula);
  double out = -12345;
  const uint32_t failed = evaluate(program, data.columns(program), 1, &out);
  if (failed != Program::no_failure) {
    CHECK(failed == 0);
    return std::nullopt;
  }
  return out;
}

std::string error_of(const std::string& formula) {
  try {
    Data().compile(formula);
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_pipeline);
    return error.message();
  }
  return "no error";
}

}  // namespace

// Not inlined, because g++ 12 would then see memory from operator new given to free(), and warn.
[[gnu::noinline]] void* operator new(size_t size) {
  allocations++;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  allocations++;
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

TEST_CASE("the meaning of formulas") {
  struct Case {
    const char* formula;
    double value;
  };
  const Case cases[] = {
      {"1 + 2 * 3 - 4", 3},
      {"(1 + 2) * 3", 9},
      {"7 / 2", 3.5},
      {"2 - 3 - 4", -5},
      {"24 / 4 / 2", 3},
      {"-2 * -3", 6},
      {"--2", 2},
      {"1e3 + .5 + 2. + 1E-1", 1002.6},
      {"A * B", 0.95 * 60},
      {"1 < 2", 1},
      {"1 > 2", 0},
      {"2 <= 2 and 2 >= 2 and not 2 != 2 and 2 == 2.0", 1},
      {"1 or 0 and 0", 1},
      {"not 0 and 0", 0},
      {"not (0 and 0)", 1},
      {"1 + (2 > 1)", 2},
      {"0.5 and 1", 1},
      {"not 0.5", 0},
      {"if(1 < 2, 3, 4.5)", 3},
      {"if(0.0, 3, 4.5)", 4.5},
      {"abs(-3) + abs(-2.5)", 5.5},
      {"sign(-7) + sign(0) * 10 + sign(2.5) * 100", 99},
      {"min(3, 2) + max(3.5, 2)", 5.5},
      {"floor(-2.5)", -3},
      {"floor(7)", 7},
      {"mod(7, 3)", 1},
      {"mod(-7, 3)", 2},
      {"mod(7, -3)", -2},
      {"mod(-7, -3)", -1},
      {"mod(-7.5, 3)", 1.5},
      {"mod(7.5, -3)", -1.5},
      {"sqrt(16) + pow(2, 10)", 1028},
      {"exp(1)", elementary::exp(1.0)},
      {"log(10)", std::log(10.0)},
      {"tanh(0.5)", elementary::tanh(0.5)},
      {"sigmoid(0)", 0.5},
      {"sigmoid(1000) + sigmoid(-1000)", 1},
      {"9223372036854775807 - 9223372036854775806", 1},  // these numbers have no exact float64
      {"-9223372036854775808 + 9223372036854775807", -1},
      {"9007199254740993 == 9007199254740992", 0},
      {"9007199254740993 == 9007199254740992.0", 1},
      {"if(1, 9007199254740993, 0) - 9007199254740992", 1},  // int64 branches are not converted
      {"mod(9223372036854775807, 10)", 7},
      {"0 - 0.0", 0},
      {" \t( 1\n)\r ", 1},
  };
  for (const Case& c : cases) {
    CAPTURE(c.formula);
    CHECK(value_of(c.formula) == c.value);
  }
}

TEST_CASE("values of columns, with all the special ones") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512));
  CHECK(value_of("i - j", {{"i", most}, {"j", most - 1}}) == 1);
  CHECK(value_of("i", {{"i", most}}) == 9223372036854775808.0);  // the result is float64
  CHECK(value_of("i / j", {{"i", 1}, {"j", 0}}) == inf);
  CHECK(value_of("x > y", {}, {{"x", nan_}, {"y", 1}}) == 0);
  CHECK(value_of("x != x", {}, {{"x", nan_}}) == 1);
  CHECK(value_of("x and 1", {}, {{"x", nan_}}) == 1);
  CHECK(std::isnan(*value_of("min(x, 1)", {}, {{"x", nan_}})));
  CHECK(std::isnan(*value_of("min(1, x)", {}, {{"x", nan_}})));
  CHECK(std::isnan(*value_of("max(x, 1)", {}, {{"x", nan_}})));
  CHECK(std::isnan(*value_of("max(1, x)", {}, {{"x", nan_}})));
  CHECK(std::isnan(*value_of("sign(x)", {}, {{"x", nan_}})));
  CHECK(std::isnan(*value_of("mod(x, 0)", {}, {{"x", 1}})));
  CHECK(std::isnan(*value_of("sqrt(x)", {}, {{"x", -1}})));
  for (const char* formula : {"-x", "0.0 / y", "sqrt(y - 1)", "x - x", "mod(x, y)"}) {
    CAPTURE(formula);
    CHECK(std::bit_cast<uint64_t>(*value_of(formula, {}, {{"x", nan_}, {"y", 0}})) == 0x7ff8000000000000);
  }
  CHECK(value_of("log(x)", {}, {{"x", 0}}) == -inf);
  CHECK(same(*value_of("mod(x, 3)", {}, {{"x", -0.0}}), 0.0));
  CHECK(same(*value_of("-x", {}, {{"x", 0.0}}), -0.0));
  CHECK(value_of("mod(x, y)", {}, {{"x", 1}, {"y", -inf}}) == -inf);  // like Python's %
  CHECK(value_of("out.o + 1", {}, {{"out.o", 2}}) == 3);
  CHECK(value_of("mod(i, j)", {{"i", least}, {"j", -1}}) == 0);
}

TEST_CASE("a row without an answer fails, unless nothing looks at it") {
  const auto fails = [](const char* formula, std::map<std::string, int64_t> values) {
    return !value_of(formula, values);
  };
  CHECK(fails("i + j", {{"i", most}, {"j", 1}}));
  CHECK(fails("i + j", {{"i", least}, {"j", -1}}));
  CHECK_FALSE(fails("i + j", {{"i", least}, {"j", most}}));
  CHECK(fails("i - j", {{"i", least}, {"j", 1}}));
  CHECK(fails("i - j", {{"i", 0}, {"j", least}}));
  CHECK(fails("i * j", {{"i", most}, {"j", 2}}));
  CHECK(fails("i * j", {{"i", least}, {"j", -1}}));
  CHECK(fails("-i", {{"i", least}}));
  CHECK(fails("abs(i)", {{"i", least}}));
  CHECK(fails("mod(i, j)", {{"i", 5}, {"j", 0}}));
  CHECK_FALSE(fails("i * 2.0", {{"i", most}}));

  CHECK(value_of("if(j == 0, -1, mod(i, j))", {{"i", 5}, {"j", 0}}) == -1);
  CHECK(value_of("if(j == 0, -1, mod(i, j))", {{"i", 5}, {"j", 3}}) == 2);
  CHECK(fails("if(j == 0, mod(i, j), -1)", {{"i", 5}, {"j", 0}}));
  CHECK(fails("if(mod(i, j), 1, 1)", {{"i", 5}, {"j", 0}}));
  CHECK(value_of("j != 0 and mod(i, j) == 2", {{"i", 5}, {"j", 0}}) == 0);
  CHECK(value_of("j == 0 or mod(i, j) == 2", {{"i", 5}, {"j", 0}}) == 1);
  CHECK(fails("mod(i, j) == 2 or j == 0", {{"i", 5}, {"j", 0}}));
  CHECK(fails("j != 1 and mod(i, j) == 2", {{"i", 5}, {"j", 0}}));
}

TEST_CASE("the first row that fails is named, in any block, and the rows before it are there") {
  Data data;
  const Program program = data.compile("i * 2");
  for (const uint32_t rows : {1u, 255u, 256u, 257u, 1000u}) {
    for (const uint32_t bad : {0u, 1u, 254u, 255u, 256u, 600u, 999u}) {
      if (bad >= rows) continue;
      data.whole["i"].assign(rows, 7);
      data.whole["i"][bad] = most;
      if (bad + 1 < rows) data.whole["i"][rows - 1] = most;
      std::vector<double> out(rows);
      CAPTURE(rows, bad);
      CHECK(evaluate(program, data.columns(program), rows, out.data()) == bad);
      for (uint32_t r = 0; r < bad; r++) REQUIRE(out[r] == 14);
    }
  }
  CHECK(program.evaluate(data.columns(program), 0, nullptr) == Program::no_failure);
}

TEST_CASE("errors of formulas point at the place") {
  struct Case {
    const char* formula;
    const char* message;
  };
  const Case cases[] = {
      {"", "the formula is empty\n  \n  ^"},
      {"1 +", "the formula ends where a value is expected\n  1 +\n     ^"},
      {"(1 + 2", "')' is missing at the end of the parenthesis\n  (1 + 2\n        ^"},
      {"1 2", "'2' does not belong here\n  1 2\n    ^"},
      {"1 + * 2", "'*' was found where a value is expected\n  1 + * 2\n      ^"},
      {"x ^ 2", "'^' does not belong here; write pow(a, b)\n  x ^ 2\n    ^"},
      {"x ** 2", "'**' does not belong here; write pow(a, b)\n  x ** 2\n    ^"},
      {"i % 2", "'%' does not belong here; write mod(a, b)\n  i % 2\n    ^"},
      {"x && y", "'&&' does not belong here; write 'and'\n  x && y\n    ^"},
      {"x | y", "'|' does not belong here; write 'or'\n  x | y\n    ^"},
      {"!x", "'!' was found where a value is expected; write 'not'\n  !x\n  ^"},
      {"x = y", "'=' does not belong here; write '=='\n  x = y\n    ^"},
      {"x ? 1 : 2", "'?' does not belong here; write if(c, a, b)\n  x ? 1 : 2\n    ^"},
      {"1 < x < 2",
       "comparisons cannot be chained; join them with 'and', as in a < b and b < c\n  1 < x < 2\n        ^"},
      {"foo", "unknown name 'foo'. The known names are: A B i j k x y z out.o\n  foo\n  ^"},
      {"out.p", "unknown name 'out.p'; did you mean 'out.o'? The known names are: A B i j k x y z out.o\n  out.p\n  ^"},
      {"out.", "the name of an output is expected after 'out.'\n  out.\n      ^"},
      {"cosh(x)",
       "there is no function 'cosh'; the functions are: abs sign min max floor mod exp log sqrt pow tanh sigmoid if\n  "
       "cosh(x)\n  ^"},
      {"min(1)", "min takes 2 values, not 1\n  min(1)\n       ^"},
      {"tanh()", "tanh takes 1 value, not 0\n  tanh()\n       ^"},
      {"abs(1, 2)", "abs takes 1 value\n  abs(1, 2)\n         ^"},
      {"if(1, 2, 3", "')' is missing at the end of if(...)\n  if(1, 2, 3\n            ^"},
      {"max(1; 2)", "max takes 2 values, not 1\n  max(1; 2)\n       ^"},
      {"9223372036854775808",
       "9223372036854775808 does not fit into int64; write 9223372036854775808.0 to compute in float64\n  "
       "9223372036854775808\n  "
       "^"},
      {"1e999", "1e999 is out of float64's range\n  1e999\n  ^"},
      {"0x10", "'0x10' is not a number\n  0x10\n  ^"},
      {"1.2.3", "'1.2.3' is not a number\n  1.2.3\n  ^"},
      {"1e", "'1e' is not a number\n  1e\n  ^"},
      {"x + and", "'and' was found where a value is expected\n  x + and\n      ^"},
      {"9223372036854775807 + 1",
       "this overflows int64; write a number with a decimal point to compute in float64\n  9223372036854775807 + 1\n   "
       "                  "
       " ^"},
      {"mod(1, 0)", "mod by 0\n  mod(1, 0)\n  ^"},
      {"x \xE2\x89\xA4 1", "'\xE2\x89\xA4' does not belong here\n  x \xE2\x89\xA4 1\n    ^"},
      {"x +\n\n y +", "the formula ends where a value is expected\n  x +   y +\n           ^"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.formula);
    CHECK(error_of(c.formula) == c.message);
  }
  const std::string far = std::string(300, ' ') + "?" + std::string(300, ' ');
  CHECK(error_of(far).size() < 300);
}

TEST_CASE("long and deep formulas are calculated or refused") {
  const auto repeated = [](const std::string& text, int times) {
    std::string result;
    for (int i = 0; i < times; i++) result += text;
    return result;
  };
  CHECK(value_of(repeated("x + ", 900) + "x", {}, {{"x", 1}}) == 901);
  CHECK(value_of(repeated("(", 90) + "x" + repeated(")", 90), {}, {{"x", 1}}) == 1);
  CHECK(value_of(repeated("x + (", 90) + "x" + repeated(")", 90), {}, {{"x", 1}}) == 91);
  CHECK(error_of(repeated("x + ", 2000) + "x")
            .starts_with("too many operations depend on each other here; move a part of the formula into a second "
                         "output, and read it as out.NAME"));
  CHECK(error_of(repeated("(", 10000) + "x").starts_with("the formula is nested too deeply"));
  CHECK(error_of(repeated("-", 10000) + "x").starts_with("the formula is nested too deeply"));
  CHECK(error_of(repeated("not ", 10000) + "x").starts_with("the formula is nested too deeply"));
  CHECK(error_of(repeated(" ", 70000) + "x")
            .starts_with("the formula has 70001 characters, and at most 65536 are allowed"));

  // The tree that needs the most registers for its size.
  std::string full = "x";
  for (int level = 0; full.size() * 3 + 10 < 65536; level++) full = fmt::format("if({},{},{})", full, full, full);
  CHECK(value_of(full, {}, {{"x", 2}}) == 2);
}

// A second evaluator: random trees are written as text and evaluated here, row by row.
namespace {

__extension__ typedef __int128 Wide;  // holds every sum and product of two int64

struct Value {
  bool whole = false, failed = false;
  Wide i = 0;
  double d = 0;
  double real() const { return whole ? static_cast<double>(static_cast<int64_t>(i)) : d; }
  bool truth() const { return whole ? i != 0 : d != 0; }
};
Value whole(Wide i) { return {true, i > most || i < least, i, 0}; }
Value real(double d) { return {false, false, 0, d}; }

struct Tree {
  std::string op;  // a name, a number or an operation
  std::vector<std::unique_ptr<Tree>> args;

  std::string text() const {
    if (args.empty()) return op;
    const auto arg = [&](size_t n) { return args[n]->text(); };
    if (std::isalpha(static_cast<unsigned char>(op[0])) && op != "and" && op != "or" && op != "not") {
      std::string list;
      for (size_t n = 0; n < args.size(); n++) list += (n ? ", " : "") + arg(n);
      return op + "(" + list + ")";
    }
    if (args.size() == 1) return "(" + op + " " + arg(0) + ")";
    return "(" + arg(0) + " " + op + " " + arg(1) + ")";
  }

  Value at(const Data& data, size_t row) const {
    if (args.empty()) {
      if (data.whole.contains(op)) return whole(data.whole.at(op)[row]);
      if (data.real.contains(op)) return real(data.real.at(op)[row]);
      if (data.constants.contains(op)) return real(data.constants.at(op));
      return op.find('.') == std::string::npos ? whole(std::stoll(op)) : real(std::stod(op));
    }
    const Value a = args[0]->at(data, row);
    if (a.failed) return a;
    if (op == "if") {
      Value value = args[a.truth() ? 1 : 2]->at(data, row);
      // The type of the result depends on the other branch, too.
      const Value other = args[a.truth() ? 2 : 1]->type(data);
      if (!other.whole && value.whole && !value.failed) value = real(value.real());
      return value;
    }
    if (op == "and" && !a.truth()) return whole(0);
    if (op == "or" && a.truth()) return whole(1);
    const Value b = args.size() > 1 ? args[1]->at(data, row) : whole(0);
    if (b.failed) return b;
    if (op == "and" || op == "or") return whole(b.truth());
    if (op == "not") return whole(!a.truth());
    const double x = a.real(), y = b.real();
    if (a.whole && b.whole) {
      if (op == "+") return whole(a.i + b.i);
      if (op == "-") return whole(args.size() == 1 ? -a.i : a.i - b.i);
      if (op == "*") return whole(a.i * b.i);
      if (op == "abs") return whole(a.i < 0 ? -a.i : a.i);
      if (op == "min") return whole(std::min(a.i, b.i));
      if (op == "max") return whole(std::max(a.i, b.i));
      if (op == "<") return whole(a.i < b.i);
      if (op == "<=") return whole(a.i <= b.i);
      if (op == ">") return whole(a.i > b.i);
      if (op == ">=") return whole(a.i >= b.i);
      if (op == "==") return whole(a.i == b.i);
      if (op == "!=") return whole(a.i != b.i);
      if (op == "mod") {
        if (b.i == 0) return {true, true, 0, 0};
        const Wide rest = a.i % b.i;
        return whole(rest != 0 && (rest < 0) != (b.i < 0) ? rest + b.i : rest);
      }
    }
    if (op == "+") return real(x + y);
    if (op == "-") return real(args.size() == 1 ? -x : x - y);
    if (op == "*") return real(x * y);
    if (op == "/") return real(x / y);
    if (op == "abs") return real(std::abs(x));
    if (op == "min") return real(std::isnan(x) || std::isnan(y) ? nan_ : x < y ? x : y);
    if (op == "max") return real(std::isnan(x) || std::isnan(y) ? nan_ : x > y ? x : y);
    if (op == "<") return whole(x < y);
    if (op == "<=") return whole(x <= y);
    if (op == ">") return whole(x > y);
    if (op == ">=") return whole(x >= y);
    if (op == "==") return whole(x == y);
    if (op == "!=") return whole(x != y);
    if (op == "mod") {
      double rest = std::fmod(x, y);
      if (rest != 0 && (rest < 0) != (y < 0)) rest += y;
      return real(rest == 0 ? std::copysign(0.0, y) : rest);
    }
    if (op == "sign") return real(x > 0 ? 1 : x < 0 ? -1 : x);
    if (op == "floor") return real(std::floor(x));
    if (op == "exp") return real(elementary::exp(x));
    if (op == "log") return real(std::log(x));
    if (op == "sqrt") return real(std::sqrt(x));
    if (op == "pow") return real(std::pow(x, y));
    if (op == "tanh") return real(elementary::tanh(x));
    if (op == "sigmoid")
      return real(x >= 0 ? 1 / (1 + elementary::exp(-x)) : elementary::exp(x) / (1 + elementary::exp(x)));
    FAIL("unknown " << op);
    return {};
  }

  // Returns a value of which only `whole` has a meaning.
  Value type(const Data& data) const {
    if (args.empty()) return at(data, 0);
    if (op == "if") return args[1]->type(data).whole && args[2]->type(data).whole ? whole(0) : real(0);
    for (const char* compare : {"and", "or", "not", "<", "<=", ">", ">=", "==", "!="})
      if (op == compare) return whole(0);
    for (const char* keeps : {"+", "-", "*", "abs", "min", "max", "mod"}) {
      if (op != keeps) continue;
      for (const auto& arg : args)
        if (!arg->type(data).whole) return real(0);
      return whole(0);
    }
    return real(0);
  }
};

std::unique_ptr<Tree> random_tree(std::mt19937_64& random, int depth) {
  const auto pick = [&](std::initializer_list<const char*> from) {
    return std::string(from.begin()[random() % from.size()]);
  };
  auto tree = std::make_unique<Tree>();
  if (depth == 0 || random() % 8 == 0) {
    tree->op = pick({"i", "j", "k", "x", "y", "z", "out.o", "A", "B", "0", "1", "2", "3.5", "1000000007", "0.001"});
    return tree;
  }
  size_t count = 2;
  switch (random() % 8) {
    case 0:
      tree->op = "if", count = 3;
      break;
    case 1:
      tree->op = pick({"-", "not", "abs", "sign", "floor", "exp", "log", "sqrt", "tanh", "sigmoid"}), count = 1;
      break;
    case 2:
      tree->op = pick({"<", "<=", ">", ">=", "==", "!=", "and", "or"});
      break;
    case 3:
      tree->op = pick({"min", "max", "mod", "pow"});
      break;
    default:
      tree->op = pick({"+", "-", "*", "/", "+", "-", "*"});
      break;
  }
  for (size_t n = 0; n < count; n++) tree->args.push_back(random_tree(random, depth - 1));
  return tree;
}

}  // namespace

TEST_CASE("random formulas, against an evaluator of the test's own") {
  std::mt19937_64 random(20261);
  Data data;
  constexpr uint32_t rows = 600;
  for (const char* name : {"i", "j", "k"}) {
    for (uint32_t r = 0; r < rows; r++) {
      const uint64_t bits = random();
      const int64_t values[] = {static_cast<int64_t>(bits), static_cast<int64_t>(bits % 7) - 3,
                                static_cast<int64_t>(bits % 2001) - 1000, most, least};
      data.whole[name].push_back(values[random() % (name[0] == 'i' ? 5 : 3)]);
    }
  }
  for (const char* name : {"x", "y", "z", "out.o"}) {
    for (uint32_t r = 0; r < rows; r++) {
      const double unit = std::uniform_real_distribution<double>(-1, 1)(random);
      const double values[] = {unit, unit * 1000, std::round(unit * 3), unit * 1e300, 0.0, -0.0, inf, nan_};
      data.real[name].push_back(values[random() % 8]);
    }
  }
  int failed_formulas = 0, compiled = 0;
  for (int n = 0; n < 4000; n++) {
    const auto tree = random_tree(random, 1 + static_cast<int>(random() % 6));
    const std::string text = tree->text();
    const ScopedSimdLevel level(static_cast<SimdLevel>(n % 3));
    CAPTURE(text, name(simd_level()));
    Program program;
    try {
      program = data.compile(text);
    } catch (const Error& error) {
      // An overflow of constants is found before there are rows.
      REQUIRE((error.message().starts_with("mod by 0") || error.message().starts_with("this overflows")));
      continue;
    }
    compiled++;
    REQUIRE((program.type() == Type::int64) == tree->type(data).whole);
    std::vector<double> out(rows, -1);
    const uint32_t failed = evaluate(program, data.columns(program), rows, out.data());
    const uint32_t good = failed == Program::no_failure ? rows : failed;
    failed_formulas += failed != Program::no_failure;
    for (uint32_t r = 0; r < good; r++) {
      const Value wanted = tree->at(data, r);
      CAPTURE(r, out[r], wanted.real());
      if (wanted.failed || !same(out[r], wanted.real())) FAIL("differs");
    }
    if (good < rows) REQUIRE(tree->at(data, failed).failed);
    // The results are the same if rows are evaluated one at a time.
    for (uint32_t r = 0; r < good; r += 97) {
      double alone = -1;
      REQUIRE(evaluate(program, data.columns(program, r), 1, &alone) == Program::no_failure);
      REQUIRE(same(alone, out[r]));
    }
  }
  CHECK(compiled > 3500);
  CHECK(failed_formulas > 100);
}

namespace {

constexpr const char* score = "(1-out.mate)*A*tanh(s/K) + out.mate*sign(s)*(A+(1-A)/(B-1)*max(0,B-abs(s)))";
const std::vector<Program::Input> score_inputs = {{"s", Type::int64}, {"out.mate", Type::float64}};
const std::map<std::string, double> score_constants = {{"A", 0.95}, {"K", 600}, {"B", 60}};

struct Scores {
  Program program = Program::compile(score, score_constants, score_inputs);
  std::vector<int64_t> s;
  std::vector<double> mate, out;
  std::vector<Program::Column> columns;
  explicit Scores(size_t rows) : out(rows) {
    std::mt19937_64 random(1);
    for (size_t r = 0; r < rows; r++) {
      s.push_back(static_cast<int64_t>(random() % 4001) - 2000);
      mate.push_back(random() % 16 == 0 ? 1 : 0);
    }
    for (const Program::Input& input : program.inputs())
      columns.push_back({input.name == "s" ? static_cast<const void*>(s.data()) : mate.data()});
  }
  uint32_t evaluate() { return program.evaluate(columns, static_cast<uint32_t>(out.size()), out.data()); }
};

}  // namespace

TEST_CASE("the chess score is what C++ makes of the same formula") {
  Scores scores(5000);
  REQUIRE(scores.evaluate() == Program::no_failure);
  const double A = 0.95, K = 600, B = 60;
  for (size_t r = 0; r < scores.s.size(); r++) {
    const auto s = static_cast<double>(scores.s[r]);
    const double m = scores.mate[r];
    const double sign = s > 0 ? 1 : s < 0 ? -1 : 0;
    REQUIRE(scores.out[r] == (1 - m) * A * elementary::tanh(s / K) +
                                 m * sign * (A + (1 - A) / (B - 1) * std::max(0.0, B - std::fabs(s))));
  }
}

namespace {

double ulps(double got, long double wanted) {
  const auto nearest = static_cast<double>(wanted);
  if (same(got, nearest)) return 0;
  const double size = std::fabs(nearest);
  return static_cast<double>(std::fabs(got - wanted) / (std::nextafter(size, inf) - size));
}

}  // namespace

TEST_CASE("exp and tanh are near what they stand for, and the same by block and by row") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512));
  std::mt19937_64 random(7);
  std::vector<double> values = {0.0, -0.0, inf, -inf, nan_, 1e-320, -1e-310, 709.78, 709.79, -745.1, -745.2, 1e300};
  for (const double range : {1e-9, 0.5, 3.0, 40.0, 745.0})
    for (int i = 0; i < 20'000; i++) values.push_back(std::uniform_real_distribution<double>(-range, range)(random));
  for (int i = 0; i < 20'000; i++) values.push_back(std::bit_cast<double>(random()));
  const std::vector<Program::Input> x = {{"x", Type::float64}};
  const auto by_block = [&](const char* formula) {
    std::vector<double> out(values.size());
    const std::vector<Program::Column> columns = {{values.data()}};
    REQUIRE(Program::compile(formula, {}, x).evaluate(columns, static_cast<uint32_t>(out.size()), out.data()) ==
            Program::no_failure);
    return out;
  };
  const std::vector<double> exp = by_block("exp(x)"), tanh = by_block("tanh(x)"), sigmoid = by_block("sigmoid(x)");
  double exp_error = 0, tanh_error = 0;
  for (size_t i = 0; i < values.size(); i++) {
    CAPTURE(values[i]);
    uint64_t failed = 0;
    if (!same(exp[i], ops::Exp::of(values[i], failed)) || !same(tanh[i], ops::Tanh::of(values[i], failed)) ||
        !same(sigmoid[i], ops::Sigmoid::of(values[i], failed)))
      FAIL("a block and a row differ");
    exp_error = std::max(exp_error, ulps(exp[i], std::exp(static_cast<long double>(values[i]))));
    tanh_error = std::max(tanh_error, ulps(tanh[i], std::tanh(static_cast<long double>(values[i]))));
  }
  CHECK(exp_error < 1);
  CHECK(tanh_error < 3);
}

TEST_CASE("evaluating allocates nothing, also where rows fail") {
  Scores scores(1000);
  Data data;
  const Program guarded = data.compile("if(j == 0, 0, mod(i, j))");
  data.whole["i"].assign(1000, 5);
  data.whole["j"].assign(1000, 0);
  const std::vector<Program::Column> columns = data.columns(guarded);
  const size_t before = allocations;
  const uint32_t failed = scores.evaluate();
  const uint32_t also = guarded.evaluate(columns, 1000, scores.out.data());
  CHECK(allocations == before);
  CHECK(failed == Program::no_failure);
  CHECK(also == Program::no_failure);
}

TEST_CASE("speed of the chess score beside tanh alone", "[.speed]") {
  Scores scores(4096);
  std::vector<double> argument(scores.s.begin(), scores.s.end());
  for (double& a : argument) a /= 600;
  const auto time = [&](auto&& body) {
    const auto start = std::chrono::steady_clock::now();
    for (int n = 0; n < 200; n++) body();
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / 200 / 4096;
  };
  for (int round = 0; round < 7; round++) {
    const double formula = time([&] { scores.evaluate(); });
    const double tanh = time([&] {
      for (size_t r = 0; r < argument.size(); r++) scores.out[r] = std::tanh(argument[r]);
    });
    fmt::print("score {:.2f} ns/row, std::tanh alone {:.2f} ns/row\n", formula, tanh);
  }
}
