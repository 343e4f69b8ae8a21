// Pipeline text is read, written, overlaid on itself and validated; its formulas are run and its memory is planned.
// There is no disk: every pattern is a file, and the plan's data is invented. Only tables are looked for, and are
// mostly not there.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/plan.h"

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

// The memory that the plan needs must be within the limit, and no two tensors may overlap.
void make_plan(PipelineSpec spec) {
  DataSet data;
  DataFile& file = data.files.emplace_back();
  file.index.records = 100;
  file.index.payload_bytes = 20'000;
  file.index.largest_record = 200;
  file.index.end = 21'600;
  file.index.entries = std::vector<io::IndexEntry>{{0, 0}, {16'416, 76}, {21'600, 100}};
  choose_samples(spec, data);
  const uint64_t limit = spec.memory_limit;
  const Plan plan(std::move(spec), std::move(data), {.replicas = 2}, 2);
  if (plan.memory.bytes() > limit || plan.text().empty()) std::abort();
  uint64_t end = 0;
  for (const BatchTensor& tensor : plan.memory.tensors) {
    if (tensor.offset < end || tensor.capacity > plan.memory.buffer_bytes - tensor.offset) std::abort();
    end = tensor.offset + tensor.capacity;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Pipeline pipeline = parse_pipeline(text);
    // The written text must be read as the same pipeline. Overlaid on itself it may change only elements that have no
    // name.
    const Pipeline again = parse_pipeline(pipeline.text());
    if (again.text() != pipeline.text()) std::abort();
    (void)pipeline.overlaid(pipeline.text());
    PipelineSpec spec = validate(pipeline, [](const FilePatterns& patterns) { return FileList{patterns.files, {}}; });
    run_formulas(spec);
    make_plan(std::move(spec));
  } catch (const Error& error) {
    const bool no_table =
        error.category() == Category::io_error && error.message().find(": lookup.table: ") != std::string::npos;
    if ((error.category() != Category::bad_pipeline && !no_table) || error.message().empty()) std::abort();
  }
  return 0;
}
