#include "tool/stats/stats_pipeline.h"

#include <algorithm>
#include <memory>

#include "feedline/error.h"
#include "feedline_pipeline.pb.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::tool {
namespace {

constexpr uint64_t batch_bytes = 1 << 20;  // a batch stays in a core's cache from its writing to its counting
constexpr uint64_t most_rows = 4096;
constexpr uint64_t ragged_bytes = 256;  // a guess for an output whose rows differ in size

int64_t rows_of_batch(const flow::PipelineSpec& spec) {
  uint64_t bytes = 1;
  for (const flow::OutputSpec& output : spec.outputs)
    bytes += output.dense() ? std::max<uint64_t>(output.row_bytes(), 1) : ragged_bytes;
  if (spec.window) bytes *= static_cast<uint64_t>(spec.window->size);
  return static_cast<int64_t>(std::clamp<uint64_t>(batch_bytes / bytes, 1, most_rows));
}

bool goes_on_for_ever(const config::Pipeline& pipeline) {
  return pipeline.has_mixture() && pipeline.mixture().stop() == config::Mixture::CYCLE_FOREVER;
}

// Pictures that would be padded are counted as encoded bytes, because no tensor of pictures is ragged.
void leave_encoded(config::Output& output) {
  config::Output as_it_is;
  as_it_is.set_name(output.name());
  as_it_is.set_feature(output.feature());
  as_it_is.set_internal(output.internal());
  output = as_it_is;
}

void make_ragged(config::Feature& feature) {
  if (feature.kind() != config::Feature::FIXED_SEQUENCE) return;
  feature.set_kind(config::Feature::RAGGED);
  feature.clear_shape();
  feature.clear_default_value();
}

}  // namespace

StatsPipeline for_stats(const Pipeline& given, bool sample, unsigned threads) {
  const flow::PipelineSpec spec = flow::validate(given);
  auto changed = std::make_shared<config::Pipeline>(given.message());
  StatsPipeline result{.pipeline = Pipeline(changed, given.folder()), .features = {}, .steps = {}};
  for (const flow::OutputSpec& output : spec.outputs) {
    if (output.padded && !output.steps) result.steps[output.name] = output.shape;
    if (!output.dense()) result.features[output.name] = {spec.features[static_cast<size_t>(output.feature)].name};
    for (const flow::DenseJob& job : output.jobs)
      if (job.column.kind == flow::ColumnRef::Kind::feature)
        result.features[output.name].push_back(spec.features[static_cast<size_t>(job.column.number)].name);
  }
  for (size_t i = 0; i < spec.outputs.size(); i++)
    if (spec.outputs[i].steps) leave_encoded(*changed->mutable_output(static_cast<int>(i)));
  for (config::Feature& feature : *changed->mutable_feature()) make_ragged(feature);
  for (config::Source& source : *changed->mutable_source()) {
    for (config::Feature& feature : *source.mutable_feature()) make_ragged(feature);
    if (sample) source.mutable_index()->set_mode(config::Index::BUILD);  // LAZY allows only file order
  }
  changed->clear_distribute();
  changed->clear_shuffle();
  if (sample) {
    changed->clear_interleave();
    changed->mutable_shuffle()->set_mode(config::Shuffle::GLOBAL);
    changed->mutable_shuffle()->set_seed(0);
  }
  if (sample && goes_on_for_ever(*changed))
    throw Error(Category::bad_pipeline,
                "a mixture with stop: CYCLE_FOREVER never ends, so a random sample of it cannot be taken; leave out "
                "--records to count all samples of epoch.steps, or set mixture.stop=ALL_DATASETS_EXHAUSTED");
  if (!goes_on_for_ever(*changed)) {
    const bool allow_empty = changed->epoch().allow_empty();
    changed->clear_epoch();
    changed->mutable_epoch()->set_allow_empty(allow_empty);
    result.rows = rows_of_batch(spec);
    changed->mutable_batch()->set_batch_size_per_replica(result.rows);
  }
  changed->mutable_batch()->set_last_batch_policy(config::Batch::PAD);
  changed->mutable_batch()->clear_valid_mask();
  // Each thread holds a batch, and the feed makes two more.
  changed->mutable_parallelism()->set_host_prefetch(static_cast<int>(std::min(threads + 2, 1024u)));
  return result;
}

}  // namespace feedline::tool
