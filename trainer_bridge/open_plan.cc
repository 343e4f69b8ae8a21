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

// Opens the tables that are not open yet: only those with `on_device` if `arriving` is true.
void open_tables(Setup& setup, bool arriving) {
  const std::vector<flow::TableSpec>& specs = setup.spec.tables;
  setup.tables.resize(specs.size());
  for (size_t i = 0; i < specs.size(); i++) {
    if (setup.tables[i] || (arriving && !specs[i].on_device)) continue;
    const auto table = std::make_shared<flow::Table>(specs[i]);
    table->open(setup.spec.memory_limit, setup.options.io, setup.route.upload);
    setup.tables[i] = table;
  }
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
                                      std::move(cache), setup.tables);
}

}  // namespace

void open_arriving_tables(Setup& setup, RankGroup& ranks) {
  if (!setup.route.transfer) return;
  open_tables(setup, true);
  flow::compare_tables(ranks, setup.spec, setup.tables);
}

std::unique_ptr<flow::Plan> open_plan(Setup& setup, RankGroup& readers) {
  const Options& options = setup.options;
  const int threads = setup.threads();
  flow::PipelineSpec spec = setup.carried(setup.route.graph_packs());
  open_tables(setup, false);
  flow::compare_tables(readers, setup.spec, setup.tables);
  flow::DataSet data = flow::count_data(spec, threads, options.on_progress, readers);
  const uint64_t chosen = data.samples;
  flow::apply_filter(spec, data, {.threads = threads, .io = options.io, .on_progress = options.on_progress});
  flow::sum_passes(spec, data);
  flow::compare_content(readers, data, spec.shuffle.mode);
  log_warnings(data);
  if (data.lazy && setup.route.transfer)
    throw Error(Category::bad_pipeline,
                "source: index.mode: LAZY cannot be combined with distribute.mode REPLICATE or SCATTER, because the "
                "ranks must know their number of steps before the first step; use index.mode BUILD");
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
  auto plan = std::make_unique<flow::Plan>(lazy.spec, std::make_shared<const flow::DataSet>(std::move(data)),
                                           lazy.ranks, lazy.threads, flow::Plan::MoreMemory{}, nullptr, lazy.tables);
  log_warnings(plan->data);
  return plan;
}

}  // namespace feedline
