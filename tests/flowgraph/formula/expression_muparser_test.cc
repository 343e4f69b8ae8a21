// Compares formulas with muParser, as far as both understand them. muParser knows only doubles, has neither mod nor
// floor, treats NaN by other rules and reorders constants. So the formulas stay away from NaN and infinity.
#include <muParser.h>

#include <bit>
#include <cmath>
#include <random>

#include "flowgraph/formula/elementary.h"
#include "flowgraph/formula/expression.h"
#include "support/catch.h"

using namespace feedline::flow;

namespace {

std::string random_formula(std::mt19937_64& random, int depth) {
  const auto pick = [&](std::initializer_list<const char*> from) {
    return std::string(from.begin()[random() % from.size()]);
  };
  const auto part = [&] { return random_formula(random, depth - 1); };
  if (depth == 0 || random() % 6 == 0) return pick({"a", "b", "c", "0.5", "2.0", "17.25"});
  switch (random() % 4) {
    case 0:
      return pick({"abs(", "exp(-abs", "exp(-abs", "sqrt(abs", "tanh(", "sign("}) + "(" + part() + "))";
    case 1: {
      const std::string name = pick({"min", "max"});
      return name + "(" + part() + ", " + part() + ")";
    }
    case 2:
      return "(-" + part() + ")";
    default: {
      const std::string left = part(), op = pick({" + ", " - ", " * ", " < ", " <= ", " > ", " >= ", " / "});
      return op == " / " ? "(" + left + " / (1.0 + abs(" + part() + ")))" : "(" + left + op + part() + ")";
    }
  }
}

}  // namespace

TEST_CASE("random formulas, against muParser") {
  std::mt19937_64 random(4);
  const std::vector<Program::Input> known = {
      {"a", Program::Type::float64}, {"b", Program::Type::float64}, {"c", Program::Type::float64}};
  constexpr uint32_t rows = 300;
  std::vector<std::vector<double>> values(3, std::vector<double>(rows));
  for (auto& column : values)
    for (double& value : column) value = std::uniform_real_distribution<double>(-20, 20)(random);
  int compared = 0;
  for (int n = 0; n < 2000; n++) {
    const std::string formula = random_formula(random, 5);
    CAPTURE(formula);
    const Program program = Program::compile(formula, {}, known);
    std::vector<Program::Column> columns;
    for (const Program::Input& input : program.inputs())
      columns.push_back({values[static_cast<size_t>(input.name[0] - 'a')].data()});
    std::vector<double> out(rows);
    REQUIRE(program.evaluate(columns, rows, out.data()) == Program::no_failure);
    if (program.type() == Program::Type::int64)  // a comparison
      for (double& value : out) value = static_cast<double>(std::bit_cast<int64_t>(value));

    mu::Parser parser;
    // Another test checks how accurate these functions are. Here both sides use the same ones, so that their last bit
    // cannot decide a comparison.
    parser.DefineFun("exp", [](double x) { return elementary::exp(x); });
    parser.DefineFun("tanh", [](double x) { return elementary::tanh(x); });
    double a = 0, b = 0, c = 0;
    parser.DefineVar("a", &a);
    parser.DefineVar("b", &b);
    parser.DefineVar("c", &c);
    parser.SetExpr(formula);
    for (uint32_t r = 0; r < rows; r++) {
      a = values[0][r], b = values[1][r], c = values[2][r];
      const double wanted = parser.Eval();
      const double tolerance = 1e-12 * std::max(1.0, std::fabs(wanted));
      CAPTURE(r, out[r], wanted);
      if (!(std::fabs(out[r] - wanted) <= tolerance)) FAIL("differs");
      compared++;
    }
  }
  CHECK(compared == 2000 * rows);
}
