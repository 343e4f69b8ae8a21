// Compares the chess score with TensorFlow's, within 8 ulp because tanh differs between libraries.
#include <bit>
#include <cstdlib>
#include <cstring>

#include "flowgraph/formula/expression.h"
#include "manifest.h"
#include "support/catch.h"

using namespace feedline;
using feedline::flow::Program;

namespace {

int64_t ordered(double value) {
  const auto bits = std::bit_cast<int64_t>(value);
  return bits < 0 ? std::numeric_limits<int64_t>::min() - bits : bits;
}

}  // namespace

TEST_CASE("the chess score of the golden records") {
  const std::vector<Program::Input> known = {{"s", Program::Type::int64}, {"out.mate", Program::Type::float64}};
  int64_t compared = 0, worst = 0;
  for (const test::GoldenCase& golden : test::golden_cases()) {
    if (golden.group != "chess" || !golden.arrays.contains("out.score")) continue;
    CAPTURE(golden.name);
    const auto arrays = test::load_npz(golden.npz);
    const auto d = arrays.at("f0.dense").as<uint8_t>();
    const auto s = arrays.at("f1.dense").as<int64_t>();
    const auto wanted = arrays.at("out.score").as<double>();
    REQUIRE(d.size() == s.size() * 194);
    REQUIRE(wanted.size() == s.size());
    std::vector<double> mate;
    for (size_t r = 0; r < s.size(); r++) mate.push_back(d[r * 194 + 193] >> (7 - 1546 % 8) & 1);

    const Program program =
        Program::compile("(1-out.mate)*A*tanh(s/K) + out.mate*sign(s)*(A+(1-A)/(B-1)*max(0,B-abs(s)))",
                         {{"A", golden.post["A"].get<double>()},
                          {"B", golden.post["B"].get<double>()},
                          {"K", golden.post["K"].get<double>()}},
                         known);
    std::vector<Program::Column> columns;
    for (const Program::Input& input : program.inputs())
      columns.push_back({input.name == "s" ? static_cast<const void*>(s.data()) : mate.data()});
    std::vector<double> score(s.size());
    REQUIRE(program.evaluate(columns, static_cast<uint32_t>(s.size()), score.data()) == Program::no_failure);
    for (size_t r = 0; r < s.size(); r++) {
      const int64_t distance = std::abs(ordered(score[r]) - ordered(wanted[r]));
      worst = std::max(worst, distance);
      compared++;
    }
  }
  CHECK(compared == 3901);
  CHECK(worst <= 8);
}
