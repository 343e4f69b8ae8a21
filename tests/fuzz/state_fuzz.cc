// A state: refused, or a place that the epoch has; what is written of that place is read as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "feedline/error.h"
#include "flowgraph/feed_state.h"
#include "flowgraph/plan.h"
#include "flowgraph/spec.h"

using namespace feedline;
using namespace feedline::flow;

namespace {

Plan make_plan() {
  PipelineSpec spec = validate(
      parse_pipeline("source { files: 'a' record_type: RAW } batch { global_batch_size: 7 last_batch_policy: PAD }"),
      [](const FilePatterns& patterns) {
        return FileList{patterns.files, {}};
      });
  DataSet data;
  DataFile& file = data.files.emplace_back();
  file.index.records = data.samples = 100;
  file.samples = {0, 100};
  file.index.largest_record = 200;
  file.index.payload_bytes = 20'000;
  file.index.end = 21'600;
  file.index.entries = std::vector<io::IndexEntry>{{0, 0}, {21'600, 100}};
  return {std::move(spec), std::move(data), {}, 1};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Plan plan = make_plan();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool accept_changes : {false, true}) {
    try {
      const Position position = read_state(text, plan, accept_changes);
      if (position.step < 0 || position.step > plan.steps_per_epoch) std::abort();
      const std::string again = state_text(plan, position);
      if (again.size() > 256 || read_state(again, plan, false) != position) std::abort();
    } catch (const Error& error) {
      if (error.category() != Category::bad_pipeline || error.message().empty()) std::abort();
    }
  }
  return 0;
}
