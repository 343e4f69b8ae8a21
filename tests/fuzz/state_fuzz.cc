// A state must be refused, or name a place that the epoch has. The state that is written for this place must be read
// back as the same place.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "feedline/error.h"
#include "flowgraph/pipeline/feed_state.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/feed_facts.h"
#include "flowgraph/plan/plan.h"

using namespace feedline;
using namespace feedline::flow;

namespace {

PipelineSpec make_spec() {
  return validate(
      parse_pipeline("source { files: 'a' record_type: RAW weight: 1 } source { files: 'b' record_type: RAW "
                     "weight: 2 } mixture { stop: CYCLE_FOREVER } epoch { steps: 40 } "
                     "batch { global_batch_size: 7 last_batch_policy: PAD }"),
      [](const FilePatterns& patterns) {
        return FileList{patterns.files, {}};
      });
}

DataSet make_data() {
  DataSet data;
  for (uint32_t source = 0; source < 2; source++) {
    DataFile& file = data.files.emplace_back();
    file.source = source;
    file.index.records = 100;
    file.samples = {0, 100};
    file.index.largest_record = 200;
    file.index.payload_bytes = 20'000;
    file.index.end = 21'600;
    file.index.entries = std::vector<io::IndexEntry>{{0, 0}, {21'600, 100}};
  }
  data.samples = 200;
  return data;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const PipelineSpec spec = make_spec();
  static const auto counted = std::make_shared<const DataSet>(make_data());
  static const Plan plan(spec, counted, {}, 1);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool accept_changes : {false, true}) {
    try {
      const auto [position, reweighted] = read_state(text, identity_of(plan), accept_changes);
      PipelineSpec changed = spec;
      changed.mixture->reweighted = reweighted;
      const FeedIdentity other = identity_of(Plan(changed, counted, {}, 1));
      check_position(other, position);
      if (position.step < 0 || position.step > other.steps_per_epoch) std::abort();
      const std::string again = state_text(other, position);
      const auto [same_position, same_weights] = read_state(again, other, false);
      if (again.size() > 256 + 22 * 2 || same_position != position || same_weights != reweighted) std::abort();
    } catch (const Error& error) {
      if (error.category() != Category::bad_pipeline || error.message().empty()) std::abort();
    }
  }
  return 0;
}
