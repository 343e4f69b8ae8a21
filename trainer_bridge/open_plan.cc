#include "trainer_bridge/open_plan.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "flowgraph/batch/empty_epoch.h"
#include "flowgraph/data/compare_ranks.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/feed/filter.h"
#include "flowgraph/feed/measure_kept.h"
#include "flowgraph/feed/transfer.h"
#include "flowgraph/plan/feed_facts.h"
#include "flowgraph/plan/pass_audit.h"
#include "flowgraph/table/table.h"

namespace feedline {
namespace {

void open_table(const Setup& setup, flow::Table& table) {
  table.open(setup.spec.memory_limit, setup.options.io, setup.route.upload);
}

void log_warnings(const flow::DataSet& data) {
  for (const std::string& warning : data.warnings) log_warning(warning);
}

std::unique_ptr<flow::Plan> make_plan(flow::PipelineSpec spec, std::shared_ptr<const flow::DataSet> data, int threads,
                                      const Setup& setup, std::shared_ptr<const flow::CachePlan> cache) {
  flow::Plan::MoreMemory more;
  if (setup.route.transfer)
    more = [&](const flow::Plan& of) {
      return flow::Transfer::memory(setup.carried(setup.route.transfer_packs()), flow::facts_of(of),
                                    setup.route.transfer_devices.size());
    };
  return std::make_unique<flow::Plan>(std::move(spec), std::move(data), setup.distribution.planned(), threads, more,
                                      std::move(cache));
}

}  // namespace

void open_arriving_tables(const Setup& setup, RankGroup& ranks) {
  if (!setup.route.transfer) return;
  for (const auto& table : setup.spec.tables)
    if (table->spec().on_device) open_table(setup, *table);
  flow::compare_tables(ranks, setup.spec);
}

std::unique_ptr<flow::Plan> open_plan(const Setup& setup, RankGroup& readers) {
  const Options& options = setup.options;
  const int threads = setup.threads();
  flow::PipelineSpec spec = setup.carried(setup.route.graph_packs());
  for (const auto& table : spec.tables) open_table(setup, *table);
  flow::compare_tables(readers, setup.spec);
  flow::DataSet data = flow::count_data(spec, threads, options.on_progress, readers);
  const uint64_t chosen = data.samples;
  flow::apply_filter(spec, data, {.threads = threads, .io = options.io, .on_progress = options.on_progress});
  flow::sum_passes(spec, data);
  flow::compare_content(readers, data);
  log_warnings(data);
  if (data.lazy && setup.route.transfer)
    throw Error(Category::bad_pipeline,
                "source: index.mode: LAZY cannot be combined with REPLICATE or SCATTER, because ranks must know "
                "their steps beforehand; use BUILD");
  std::shared_ptr<const flow::CachePlan> cache;
  if (spec.cache) cache = std::make_shared<const flow::CachePlan>(spec, data, flow::measure_kept(spec, data));
  auto plan =
      make_plan(std::move(spec), std::make_shared<flow::DataSet>(std::move(data)), threads, setup, std::move(cache));
  flow::refuse_empty_epoch(*plan, chosen);
  return plan;
}

std::unique_ptr<flow::Plan> with_weights(const flow::Plan& plan, const std::optional<flow::Reweighted>& weights,
                                         const Setup& setup) {
  if (!plan.spec.mixture || plan.spec.mixture->reweighted == weights) return nullptr;
  flow::PipelineSpec spec = plan.spec;
  spec.mixture->reweighted = weights;
  auto reweighted = make_plan(std::move(spec), plan.shared_data, plan.threads, setup, plan.cache);
  flow::refuse_empty_epoch(*reweighted, reweighted->data.samples);
  return reweighted;
}

std::unique_ptr<flow::Plan> counted_plan(const flow::Plan& lazy, const std::vector<io::FileIndex>& counted) {
  flow::DataSet data = flow::counted_data(lazy.spec, lazy.data, counted);
  flow::sum_passes(lazy.spec, data);
  auto plan = std::make_unique<flow::Plan>(lazy.spec, std::move(data), lazy.ranks, lazy.threads);
  log_warnings(plan->data);
  return plan;
}

}  // namespace feedline
