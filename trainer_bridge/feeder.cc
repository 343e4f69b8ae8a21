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
    plan.emplace(std::move(spec), std::move(data), who, threads);
    for (const flow::DataFile& file : plan->data.files) files.push_back(file.id.uri);
  }

  void begin(const flow::Position& position) {
    graph = std::make_unique<flow::Graph>(*plan,
                                          flow::GraphOptions{.devices = options.devices,
                                                             .io = options.io,
                                                             .start = {.epoch = position.epoch, .step = position.step},
                                                             .deliver_before_error = options.deliver_before_error});
  }

  // Under the lock.
  void begin_anew(const flow::Position& position) {
    if (stopped) throw Error(Category::stalled, "the feeder was stopped");
    graph.reset();  // first, so that there is memory for one
    on_cpus(plan->spec.cpu_set, "feedline-open", [&] { begin(position); });
  }

  flow::Delivery& delivery() const {
    if (!graph) throw Error(Category::stalled, "the feeder could not be set to another place, and has none");
    return graph->delivery();
  }

  std::string state_at(const flow::Position& position) const {
    flow::check_position(*plan, position);
    return flow::state_text(*plan, position);
  }

  const Clock::time_point start = Clock::now();
  Options options;
  std::optional<flow::Plan> plan;
  std::vector<std::string> files;
  std::mutex mutex;  // of set_state() against what may be called from any thread; guards from here
  std::unique_ptr<flow::Graph> graph;
  bool stopped = false;
};

Feeder::Feeder(const Pipeline& pipeline, Options options)
    : impl_(std::make_unique<Impl>(pipeline, std::move(options))) {}

Feeder::~Feeder() = default;

Batch Feeder::next(int replica) {
  Batch batch;
  impl_->delivery().next(replica, std::nullopt, batch);
  return batch;
}

Next Feeder::next(int replica, std::chrono::nanoseconds timeout, Batch& batch) {
  using Outcome = flow::Delivery::Outcome;
  switch (impl_->delivery().next(replica, after(timeout), batch)) {
    case Outcome::batch:
      return Next::batch;
    case Outcome::end_of_epoch:
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
  if (impl_->plan->steps_per_epoch >= 0) position.step = std::min(position.step, impl_->plan->steps_per_epoch);
  return impl_->state_at(position);
}

std::string Feeder::get_state(int64_t step) const { return get_state(epoch(), step); }

std::string Feeder::get_state(uint64_t epoch, int64_t step) const { return impl_->state_at({epoch, step}); }

void Feeder::set_state(std::string_view text, bool accept_changes) {
  const flow::Position position = flow::read_state(text, *impl_->plan, accept_changes);
  const std::lock_guard lock(impl_->mutex);
  impl_->begin_anew(position);
}

void Feeder::set_epoch(uint64_t epoch) {
  const flow::Position beginning{epoch, 0};
  flow::check_position(*impl_->plan, beginning);
  const std::lock_guard lock(impl_->mutex);
  const auto [last, first] = impl_->delivery().positions();
  if (last != beginning || first != beginning) impl_->begin_anew(beginning);
}

int Feeder::replicas() const noexcept { return impl_->plan->replicas; }

uint64_t Feeder::epoch() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->delivery().positions().last.epoch;
}

int64_t Feeder::steps_per_epoch() const noexcept { return impl_->plan->steps_per_epoch; }

int64_t Feeder::samples_per_epoch() const noexcept { return impl_->plan->samples_per_epoch; }

const std::vector<std::string>& Feeder::files() const noexcept { return impl_->files; }

std::string Feeder::plan_text() const { return impl_->plan->text(); }

const std::vector<std::string>& Feeder::warnings() const noexcept { return impl_->plan->spec.warnings; }

Report Feeder::report() const {
  const flow::Plan& plan = *impl_->plan;
  const std::lock_guard lock(impl_->mutex);
  const flow::DeliveryReport delivered = impl_->delivery().report();
  flow::GraphReport graph = impl_->graph->report();
  Report report;
  report.records = delivered.records;
  report.steps = delivered.steps;
  report.dropped = delivered.finished_epochs * static_cast<uint64_t>(std::max<int64_t>(0, plan.dropped_per_epoch));
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
  report.next_us = {delivered.next.quantile_us(0.5), delivered.next.quantile_us(0.99), delivered.next.max_us()};
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
