#include "feedline/feeder.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/machine.h"
#include "base/thread.h"
#include "flowgraph/compare_ranks.h"
#include "flowgraph/error_log.h"
#include "flowgraph/feed_state.h"
#include "flowgraph/filter.h"
#include "flowgraph/graph.h"
#include "flowgraph/plan.h"
#include "flowgraph/rank_group.h"

namespace feedline {
namespace {

using Clock = std::chrono::steady_clock;

int thread_count(const Options& options, const flow::PipelineSpec& spec) {
  int threads = options.threads > 0 ? options.threads : spec.threads;
  if (threads == 0) threads = static_cast<int>(cpus_of_this_rank());
  if (!spec.cpu_set.empty()) threads = std::min(threads, static_cast<int>(spec.cpu_set.size()));
  return std::min(threads, static_cast<int>(usable_cpus()));
}

Clock::time_point after(std::chrono::nanoseconds timeout) {
  const auto now = Clock::now();
  return timeout > Clock::time_point::max() - now ? Clock::time_point::max() : now + timeout;
}

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

struct Feeder::Impl {
  Impl(const Pipeline& pipeline, Options given) : options(std::move(given)) {
    flow::RankGroup ranks(std::exchange(options.exchange, {}), options.rank, options.world_size);
    ranks.run([&] {
      flow::PipelineSpec spec = flow::validate(pipeline);
      if (options.devices.empty())
        throw Error(Category::bad_pipeline, "options.devices: a feeder needs at least one replica");
      if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size)
        throw Error(Category::bad_pipeline,
                    fmt::format("options.rank: {} of {} ranks", options.rank, options.world_size));
      const std::vector<int> cpus = spec.cpu_set;
      on_cpus(cpus, "feedline-open", [&] {
        flow::compare_pipelines(ranks, pipeline.message(), static_cast<int>(options.devices.size()), options.epoch);
        open(std::move(spec), ranks);
        const flow::Position beginning{options.epoch, 0};
        flow::check_position(*plan, beginning);
        begin(beginning);
      });
    });
  }

  // Whatever it starts stays there, too.
  template <typename Body>
  static void on_cpus(const std::vector<int>& cpus, const char* name, Body&& body) {
    cpus.empty() ? body() : run_on_cpus(name, cpus, body);
  }

  void open(flow::PipelineSpec spec, flow::RankGroup& ranks) {
    const int threads = thread_count(options, spec);
    flow::DataSet data = flow::count_data(spec, threads, options.on_progress, ranks);
    flow::apply_filter(spec, data, {.threads = threads, .io = options.io, .on_progress = options.on_progress});
    flow::compare_content(ranks, data);
    for (const std::string& warning : data.warnings) logger()->warn(warning);
    const flow::Ranks who{
        .rank = options.rank, .world_size = options.world_size, .replicas = static_cast<int>(options.devices.size())};
    plan = std::make_unique<flow::Plan>(std::move(spec), std::move(data), who, threads);
    for (const flow::DataFile& file : plan->data.files) files.push_back(file.id.uri);
    warnings = plan->spec.warnings;
  }

  void begin(const flow::Position& position) {
    graph = std::make_unique<flow::Graph>(*plan,
                                          flow::GraphOptions{.devices = options.devices,
                                                             .io = options.io,
                                                             .start = {.epoch = position.epoch, .step = position.step},
                                                             .deliver_before_error = options.deliver_before_error});
  }

  // With other weights of the mixture, or those of the pipeline; null: it has these. Under the lock.
  std::unique_ptr<flow::Plan> reweighted_plan(const std::optional<flow::Reweighted>& weights) const {
    if (!plan->spec.mixture || plan->spec.mixture->reweighted == weights) return nullptr;
    flow::PipelineSpec spec = plan->spec;
    spec.mixture->reweighted = weights;
    return std::make_unique<flow::Plan>(std::move(spec), plan->shared_data, plan->ranks, plan->threads);
  }

  // Under the lock; by another plan, if there is one.
  void begin_anew(const flow::Position& position, std::unique_ptr<flow::Plan> reweighted = nullptr) {
    if (stopped) throw Error(Category::stalled, "the feeder was stopped");
    std::unique_ptr<flow::Plan>& other = reweighted ? reweighted : counted;
    flow::check_position(other ? *other : *plan, position);
    graph.reset();  // first, so that there is memory for one
    if (other) plan = std::move(other);
    on_cpus(plan->spec.cpu_set, "feedline-open", [&] { begin(position); });
  }

  flow::Delivery& delivery() const {
    if (!graph) throw Error(Category::stalled, "the feeder could not be set to another place, and has none");
    return graph->delivery();
  }

  /// What is known of the data by now. Under the lock.
  const flow::Plan& known() const { return counted ? *counted : *plan; }

  /// LAZY: once all replicas have had the first epoch, its counts are known. The graph stays until it is to begin anew.
  void note_end_of_epoch() {
    const std::lock_guard lock(mutex);
    if (counted || !plan->data.lazy || graph->delivery().report().finished_epochs == 0) return;
    counted = std::make_unique<flow::Plan>(plan->spec, flow::counted_data(plan->spec, plan->data, *graph->counted()),
                                           plan->ranks, plan->threads);
    for (const std::string& warning : counted->data.warnings) logger()->warn(warning);
  }

  // Under the lock.
  void check_counted() const {
    if (known().data.lazy)
      throw Error(Category::bad_pipeline,
                  "state: index.mode LAZY: before the first epoch has ended nobody knows which data this is; with mode "
                  "BUILD it is counted first");
  }

  std::string state_at(const flow::Position& position) const {
    check_counted();
    flow::check_position(known(), position);
    return flow::state_text(known(), position);
  }

  const Clock::time_point start = Clock::now();
  Options options;
  std::vector<std::string> files, warnings;
  mutable std::mutex mutex;             // of set_state() against what may be called from any thread; guards from here
  std::unique_ptr<flow::Plan> plan;     // of the graph
  std::unique_ptr<flow::Plan> counted;  // LAZY: what it will be when the graph begins anew
  std::unique_ptr<flow::Graph> graph;
  bool stopped = false;
};

Feeder::Feeder(const Pipeline& pipeline, Options options)
    : impl_(std::make_unique<Impl>(pipeline, std::move(options))) {}

Feeder::~Feeder() = default;

Batch Feeder::next(int replica) {
  Batch batch;
  if (impl_->delivery().next(replica, std::nullopt, batch) == flow::Delivery::Outcome::end_of_epoch)
    impl_->note_end_of_epoch();
  return batch;
}

Next Feeder::next(int replica, std::chrono::nanoseconds timeout, Batch& batch) {
  using Outcome = flow::Delivery::Outcome;
  switch (impl_->delivery().next(replica, after(timeout), batch)) {
    case Outcome::batch:
      return Next::batch;
    case Outcome::end_of_epoch:
      impl_->note_end_of_epoch();
      return Next::end_of_epoch;
    case Outcome::not_ready:
      break;
  }
  return Next::not_ready;
}

void Feeder::stop() noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->stopped = true;
  if (impl_->graph) impl_->graph->stop();
}

std::string Feeder::get_state() const {
  const std::lock_guard lock(impl_->mutex);
  flow::Position position = impl_->delivery().positions().last;
  // Rows before an error may come as a step that is none.
  const int64_t steps = impl_->known().steps_per_epoch;
  if (steps >= 0) position.step = std::min(position.step, steps);
  return impl_->state_at(position);
}

std::string Feeder::get_state(int64_t step) const { return get_state(epoch(), step); }

std::string Feeder::get_state(uint64_t epoch, int64_t step) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->state_at({epoch, step});
}

void Feeder::set_state(std::string_view text, bool accept_changes) {
  const std::lock_guard lock(impl_->mutex);
  impl_->check_counted();
  const auto [position, reweighted] = flow::read_state(text, impl_->known(), accept_changes);
  impl_->begin_anew(position, impl_->reweighted_plan(reweighted));
}

void Feeder::set_epoch(uint64_t epoch) {
  const flow::Position beginning{epoch, 0};
  const std::lock_guard lock(impl_->mutex);
  const auto [last, first] = impl_->delivery().positions();
  if (last != beginning || first != beginning || impl_->counted) impl_->begin_anew(beginning);
}

void Feeder::set_weights(const std::vector<double>& weights) {
  const std::lock_guard lock(impl_->mutex);
  const flow::Plan& plan = *impl_->plan;
  if (!plan.mixture) throw Error(Category::bad_pipeline, "set_weights: the pipeline has no mixture");
  if (weights.size() != plan.spec.sources.size())
    throw Error(Category::bad_pipeline,
                fmt::format("set_weights: {} weights for {} sources", weights.size(), plan.spec.sources.size()));
  const auto [last, first] = impl_->delivery().positions();
  if (last != first || last.step != 0)
    throw Error(Category::bad_pipeline,
                fmt::format("set_weights: epoch {} has begun; call it when every replica has had the end of an epoch",
                            first.epoch));
  impl_->begin_anew(
      last, impl_->reweighted_plan(flow::Reweighted{.shares = flow::shares_of(weights),
                                                    .since_epoch = plan.mixture->epochs_go_on() ? last.epoch : 0,
                                                    .taken = plan.mixture->taken_before(last.epoch)}));
}

int Feeder::replicas() const noexcept { return static_cast<int>(impl_->options.devices.size()); }

uint64_t Feeder::epoch() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->delivery().positions().last.epoch;
}

int64_t Feeder::steps_per_epoch() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->known().steps_per_epoch;
}

int64_t Feeder::samples_per_epoch() const noexcept {
  const std::lock_guard lock(impl_->mutex);
  return impl_->known().samples_per_epoch;
}

const std::vector<std::string>& Feeder::files() const noexcept { return impl_->files; }

std::string Feeder::plan_text() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->known().text();
}

const std::vector<std::string>& Feeder::warnings() const noexcept { return impl_->warnings; }

Report Feeder::report() const {
  const std::lock_guard lock(impl_->mutex);
  const flow::Plan& plan = *impl_->plan;
  const flow::DeliveryReport delivered = impl_->delivery().report();
  flow::GraphReport graph = impl_->graph->report();
  Report report;
  report.records = delivered.records;
  report.steps = delivered.steps;
  report.dropped =
      delivered.finished_epochs * static_cast<uint64_t>(std::max<int64_t>(0, impl_->known().dropped_per_epoch));
  report.filler = delivered.filler;
  for (const std::vector<Error>* errors : {&plan.data.skipped, &std::as_const(graph.errors)}) {
    const size_t room = flow::ErrorLog::kept - report.errors.size();
    std::copy_n(errors->begin(), std::min(errors->size(), room), std::back_inserter(report.errors));
  }
  report.errors_total = plan.data.skipped_total + graph.errors_total;
  report.audit = delivered.audit;
  report.last_epoch = delivered.last_epoch;
  report.differing_epochs = delivered.differing_epochs;
  report.bytes_read = graph.bytes_read;
  report.count_s = plan.data.count_s;
  if (delivered.first_batch) {
    report.first_batch_s = seconds(*delivered.first_batch - impl_->start);
    report.wall_s = seconds(Clock::now() - *delivered.first_batch);
  }
  report.next_us = {delivered.next.quantile_us(0.5), delivered.next.quantile_us(0.99), delivered.next.max_us(),
                    delivered.next.histogram_us()};
  if (delivered.next_calls > 0)
    report.data_readiness = static_cast<double>(delivered.next_ready) / static_cast<double>(delivered.next_calls);
  const auto* longest = std::max_element(std::begin(delivered.waited_s), std::end(delivered.waited_s));
  for (double waited : delivered.waited_s) report.next_wait_s += waited;
  if (*longest > 0) report.waited_for = flow::name(static_cast<flow::Stage>(longest - std::begin(delivered.waited_s)));
  report.layout_hits = graph.layout_hits;
  report.backend = impl_->graph->backend();
  report.stages = std::move(graph.stages);
  return report;
}

}  // namespace feedline
