#include "flowgraph/expression.h"

#include <cmath>

#include "feedline/error.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::flow;

TEST_CASE("the chess score") {
  const std::vector<Program::Input> known = {{"s", Program::Type::int64}, {"out.mate", Program::Type::float64}};
  const Program program =
      Program::compile("(1-out.mate)*A*tanh(s/K) + out.mate*sign(s)*(A+(1-A)/(B-1)*max(0,B-abs(s)))",
                       {{"A", 0.95}, {"K", 600}, {"B", 60}}, known);
  std::vector<int64_t> s;
  std::vector<double> mate;
  for (int64_t i = -500; i < 500; i++) {
    s.push_back(i * 7);
    mate.push_back(i % 3 == 0 ? 1 : 0);
  }
  std::vector<double> out(s.size());
  REQUIRE(program.inputs().size() == 2);
  REQUIRE(program.inputs()[0].name == "out.mate");
  const std::vector<Program::Column> columns = {{Program::Type::float64, mate.data()},
                                                {Program::Type::int64, s.data()}};
  REQUIRE(program.evaluate(columns, static_cast<uint32_t>(s.size()), out.data()) == Program::no_failure);
  const double A = 0.95, K = 600, B = 60;
  for (size_t i = 0; i < s.size(); i++) {
    const double x = static_cast<double>(s[i]), m = mate[i];
    const double sign = x > 0 ? 1 : x < 0 ? -1 : 0;
    CHECK(out[i] ==
          (1 - m) * A * std::tanh(x / K) + m * sign * (A + (1 - A) / (B - 1) * std::max(0.0, B - std::fabs(x))));
  }
}
