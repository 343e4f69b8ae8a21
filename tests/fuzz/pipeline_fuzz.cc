// Pipeline text is read, written, overlaid on itself and validated; its formulas are run and its memory is planned.
// There is no disk: every pattern is a file, and the plan's data is invented. Only tables are looked for, and are
// mostly not there. If a pipeline looks something up, nothing is planned, because that needs open tables. An input may
// be several pipelines, with a line of --- between them.
// covers: flowgraph/pipeline/validate.cc flowgraph/pipeline/resolve_features.cc flowgraph/pipeline/resolve_formulas.cc
// covers: flowgraph/pipeline/resolve_outputs.cc flowgraph/formula/expression.cc flowgraph/formula/formula.cc
// covers: flowgraph/pipeline/output_resolver.cc flowgraph/pipeline/resolve_bits.cc flowgraph/pipeline/resolve_cache.cc
// covers: flowgraph/pipeline/resolve_hash.cc flowgraph/pipeline/resolve_one_hot.cc flowgraph/pipeline/resolve_picture.cc
// covers: flowgraph/pipeline/resolve_raw.cc flowgraph/pipeline/resolve_stack.cc flowgraph/pipeline/resolve_vocabulary.cc
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/plan.h"
#include "require.h"

using namespace feedline;
using namespace feedline::flow;
using test::require;

namespace {

// The results of all rows must be those of each row alone, as far as none fails.
void run_formulas(const PipelineSpec& spec) {
  constexpr uint32_t rows = 5;
  const int64_t whole[rows] = {0, 7, -1, INT64_MAX, INT64_MIN};
  const double real[rows] = {0, 0.5, -1.5, 1e300, std::numeric_limits<double>::quiet_NaN()};
  for (const ExpressionSpec& expression : spec.expressions) {
    const Program& program = expression.program;
    const auto columns_from = [&](uint32_t row) {
      std::vector<Program::Column> columns;
      for (const Program::Input& input : program.inputs())
        columns.push_back({input.type == Program::Type::int64 ? static_cast<const void*>(whole + row)
                                                              : static_cast<const void*>(real + row)});
      return columns;
    };
    double all[rows] = {};
    const uint32_t failed = program.evaluate(columns_from(0), rows, all);
    require(failed == Program::no_failure || failed < rows, "a row fails that is not there");
    for (uint32_t row = 0; row < std::min(rows, failed); row++) {
      double one = 0;
      require(program.evaluate(columns_from(row), 1, &one) == Program::no_failure, "a row fails only alone");
      require(std::memcmp(&one, &all[row], sizeof one) == 0, "a row has another result alone");
    }
    double one = 0;
    if (failed != Program::no_failure)
      require(program.evaluate(columns_from(failed), 1, &one) == 0, "a row fails only beside others");
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
  require(plan.memory.bytes() <= limit && !plan.text().empty(), "more memory than is allowed");
  uint64_t end = 0;
  for (const BatchTensor& tensor : plan.memory.tensors) {
    require(tensor.offset >= end && tensor.capacity <= plan.memory.buffer_bytes - tensor.offset, "tensors overlap");
    end = tensor.offset + tensor.capacity;
  }
}

// A refusal must name a place of the text, a feature, a table, or a field by its path in the pipeline.
void check_refusal(const Error& error) {
  static constexpr std::string_view stages[] = {
      "source", "feature", "filter", "interleave", "window",      "mixture",    "shuffle",  "epoch",   "batch",
      "output", "cache",   "errors", "memory",     "parallelism", "distribute", "pipeline", "constant"};
  const std::string& message = error.message();
  const bool no_table = error.category() == Category::io_error && message.find(": lookup.table: ") != std::string::npos;
  require(error.category() == Category::bad_pipeline || no_table, "another category");
  const Place& place = error.place();
  if (!place.file.empty() || !place.feature.empty()) return;
  require(std::ranges::any_of(stages, [&](std::string_view stage) { return message.starts_with(stage); }),
          "a refusal does not say what it is about: " + message);
}

void check_pipeline(std::string_view text) {
  try {
    const Pipeline pipeline = parse_pipeline(text);
    // The written text must be read as the same pipeline. Overlaid on itself it may change only elements that have no
    // name.
    const Pipeline again = parse_pipeline(pipeline.text());
    require(again.text() == pipeline.text(), "the text is not read as it was written");
    (void)pipeline.overlaid(pipeline.text());
    PipelineSpec spec = validate(pipeline, [](const FilePatterns& patterns) { return FileList{patterns.files, {}}; });
    run_formulas(spec);
    if (spec.tables.empty()) make_plan(std::move(spec));
  } catch (const Error& error) {
    check_refusal(error);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view between = "\n---\n";
  std::string_view text(reinterpret_cast<const char*>(data), size);
  for (size_t end; (end = text.find(between)) != text.npos; text.remove_prefix(end + between.size()))
    check_pipeline(text.substr(0, end));
  check_pipeline(text);
  return 0;
}
