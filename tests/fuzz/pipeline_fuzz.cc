// Pipeline text: read, written, laid over itself, validated, and its formulas run. There is no disk: every pattern is a
// file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/spec.h"

using namespace feedline;
using namespace feedline::flow;

namespace {

void run_formulas(const PipelineSpec& spec) {
  constexpr uint32_t rows = 3;
  const int64_t whole[rows] = {0, -1, INT64_MIN};
  const double real[rows] = {0, -1.5, 1e300};
  for (const ExpressionSpec& expression : spec.expressions) {
    std::vector<Program::Column> columns;
    for (const Program::Input& input : expression.program.inputs())
      columns.push_back({input.type, input.type == Program::Type::int64 ? static_cast<const void*>(whole) : real});
    double out[rows];
    expression.program.evaluate(columns, rows, out);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Pipeline pipeline = parse_pipeline(text);
    // What was written is read as the same, and laid over itself changes nothing but what has no name to go by.
    const Pipeline again = parse_pipeline(pipeline.text());
    if (again.text() != pipeline.text()) std::abort();
    (void)pipeline.overlaid(pipeline.text());
    run_formulas(validate(pipeline, [](const FilePatterns& patterns) { return FileList{patterns.files, {}}; }));
  } catch (const Error& error) {
    if (error.category() != Category::bad_pipeline || error.message().empty()) std::abort();
  }
  return 0;
}
