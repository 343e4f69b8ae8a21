#include "feedline/feeder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/leak.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/rank_message.h"
#include "base/thread.h"
#include "feedline_pipeline.pb.h"
#include "flowgraph/batch/empty_epoch.h"
#include "flowgraph/batch/packing.h"
#include "flowgraph/data/compare_ranks.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/feed/error_log.h"
#include "flowgraph/feed/filter.h"
#include "flowgraph/feed/graph.h"
#include "flowgraph/feed/rank_audits.h"
#include "flowgraph/feed/transfer.h"
#include "flowgraph/feed/try_records.h"
#include "flowgraph/feed/upload.h"
#include "flowgraph/pipeline/elements.h"
#include "flowgraph/pipeline/feed_state.h"
#include "flowgraph/plan/distribution.h"
#include "flowgraph/plan/feed_facts.h"
#include "flowgraph/plan/pass_audit.h"
#include "flowgraph/plan/plan.h"
#include "gpu/device/device_ring.h"
#include "ranks/rank_group.h"

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

void add_reading(Report& report, const flow::DataSet& data, const flow::Graph& of) {
  flow::GraphReport graph = of.report();
  for (const std::vector<Error>* errors : {&data.skipped, &std::as_const(graph.errors)}) {
    const size_t room = flow::ErrorLog::kept - report.errors.size();
    std::copy_n(errors->begin(), std::min(errors->size(), room), std::back_inserter(report.errors));
  }
  report.errors_total = data.skipped_total + graph.errors_total;
  report.bytes_read = graph.bytes_read;
  report.count_s = data.count_s;
  report.layout_hits = graph.layout_hits;
  report.backend = of.backend();
  report.stages = std::move(graph.stages);
}

}  // namespace

struct Feeder::Impl {
  Impl(const Pipeline& pipeline, Options given) : options(std::move(given)) {
    join_ranks(pipeline);
    RankGroup ranks(std::exchange(options.exchange, {}), options.rank, options.world_size);
    ranks.run([&] {
      spec = flow::validate(pipeline, distribution.transfers() ? patterns_only : flow::list_files);
      check_options();
      agree(pipeline, ranks);
      if (reads() && distribution.transfers()) spec = flow::validate(pipeline);
      warnings = spec.warnings;
      elements = flow::elements_of(spec);
      on_cpus(spec.cpu_set, "feedline-open", [&] {
        ranks.among(distribution.readers(), [&](RankGroup& readers) { open(readers); });
        begin({options.epoch, 0}, ranks);
      });
    });
    files = std::move(facts.files);
    run_transfer();
  }

  // Runs `body` on these CPUs, if any are given. Threads that it starts stay on them as well.
  template <typename Body>
  static void on_cpus(const std::vector<int>& cpus, const char* name, Body&& body) {
    cpus.empty() ? body() : run_on_cpus(name, cpus, body);
  }

  static flow::FileList patterns_only(const flow::FilePatterns& patterns) { return {patterns.files, {}}; }

  void join_ranks(const Pipeline& pipeline) {
    distribution.mode = static_cast<flow::DistributeMode>(pipeline.message().distribute().mode());
    if (!options.communicator && options.world_size <= 1 && distribution.transfers())
      options.communicator = std::move(communicators_between_threads(1)[0]);
    if (options.communicator) {
      options.rank = options.communicator->rank();
      options.world_size = options.communicator->size();
      options.exchange = exchange_over(options.communicator);
    }
  }

  void check_options() const {
    if (options.devices.empty())
      throw Error(Category::bad_pipeline, "options.devices: a feeder needs at least one replica");
    for (const DeviceId device : options.devices)
      if (device.kind != options.devices.front().kind)
        throw Error(Category::bad_pipeline, "options.devices: replicas on the host and on GPUs need separate feeders");
    gpu::check_devices(options.devices);
    if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size)
      throw Error(Category::bad_pipeline,
                  fmt::format("options.rank: {} of {} ranks", options.rank, options.world_size));
    if (options.data_parallel_rank >= 0 && options.data_parallel_size == 0)
      throw Error(
          Category::bad_pipeline,
          "options.data_parallel_rank: options.data_parallel_size is missing; it says how many parts there are");
    if (const auto& between = options.gpu_communicator) {
      if (!options.communicator || !on_gpus() || !distribution.transfers() || options.devices.size() != 1)
        throw Error(Category::bad_pipeline,
                    "options.gpu_communicator: it is for REPLICATE and SCATTER to one replica of each rank, on a GPU, "
                    "and needs an options.communicator beside it");
      if (between->device() != options.devices[0])
        throw Error(Category::bad_pipeline, "options.gpu_communicator: it is for another GPU than options.devices");
      if (between->rank() != options.rank || between->size() != options.world_size)
        throw Error(Category::bad_pipeline,
                    fmt::format("options.gpu_communicator: this is rank {} of {} there, and {} of {} in "
                                "options.communicator",
                                between->rank(), between->size(), options.rank, options.world_size));
    }
    if (distribution.transfers() && !options.communicator)
      throw Error(Category::bad_pipeline,
                  "distribute.mode: REPLICATE and SCATTER between ranks need options.communicator");
  }

  // Compares the pipelines of all ranks, and tells every rank which part of a global batch each rank is given.
  void agree(const Pipeline& pipeline, RankGroup& ranks) {
    const bool whole = distribution.mode == flow::DistributeMode::replicate;
    const bool given = options.data_parallel_size > 0;
    distribution.rank = options.rank;
    distribution.replicas = static_cast<int>(options.devices.size());
    distribution.data_parallel_size = given ? options.data_parallel_size : whole ? 1 : options.world_size;
    const int part = given ? options.data_parallel_rank : whole ? 0 : options.rank;
    flow::compare_pipelines(ranks, pipeline.message(), distribution.replicas, distribution.data_parallel_size,
                            options.epoch);
    distribution.data_parallel_ranks.assign(static_cast<size_t>(options.world_size), 0);
    if (ranks.size() == 1) {  // the parts of the other ranks cannot be known
      distribution.data_parallel_ranks[static_cast<size_t>(options.rank)] = part;
      return distribution.check(options.world_size == 1);
    }
    MessageWriter mine;
    mine.put(part);
    mine.put(options.gpu_communicator != nullptr);
    const std::vector<std::string> all = ranks.all_gather(mine.take());
    std::vector<bool> has;
    for (size_t rank = 0; rank < all.size(); rank++) {
      MessageReader theirs(all[rank]);
      distribution.data_parallel_ranks[rank] = theirs.get<int>();
      has.push_back(theirs.get<bool>());
      if (has[rank] != has[0])
        throw Error(Category::bad_pipeline,
                    fmt::format("options.gpu_communicator: rank {} has one and rank {} has none", has[0] ? 0 : rank,
                                has[0] ? rank : 0));
    }
    distribution.check(true);
  }

  bool reads() const noexcept { return distribution.reads(distribution.rank); }
  bool on_gpus() const noexcept { return options.devices.front().kind == DeviceId::Kind::cuda; }
  /// The pipeline that the graph carries out (or that a transfer delivers). If `packed`, its outputs are packed rows,
  /// which are unpacked later: on the rank that receives them, or on a GPU.
  flow::PipelineSpec carried(bool packed) const { return packed ? flow::pack(spec).spec : spec; }

  void open(RankGroup& readers) {
    const int threads = thread_count(options, spec);
    flow::PipelineSpec planned = carried(distribution.transfers() || on_gpus());
    flow::DataSet data = flow::count_data(planned, threads, options.on_progress, readers);
    const uint64_t chosen = data.samples;
    flow::apply_filter(planned, data, {.threads = threads, .io = options.io, .on_progress = options.on_progress});
    flow::sum_passes(planned, data);
    flow::compare_content(readers, data);
    for (const std::string& warning : data.warnings) log_warning(warning);
    if (data.lazy && distribution.transfers())
      throw Error(Category::bad_pipeline,
                  "source: index.mode: LAZY cannot be combined with REPLICATE or SCATTER, because ranks must know "
                  "their steps beforehand; use BUILD");
    plan = make_plan(std::move(planned), std::make_shared<flow::DataSet>(std::move(data)), threads);
    flow::refuse_empty_epoch(*plan, chosen);
    facts = flow::facts_of(*plan);
  }

  /// Returns whether all replicas of this process are GPUs that are given the same rows. Rows are then uploaded to the
  /// first GPU only, and each other GPU copies them from the one before it.
  bool same_rows() const noexcept { return on_gpus() && distribution.mode == flow::DistributeMode::replicate; }
  /// Returns which parts, of those that this rank's reader sends, arrive at the devices of arrive_at(). With a
  /// gpu_communicator, the rank that reads takes the parts of all ranks, because they pass through its GPU.
  std::vector<int> parts_here() const {
    if (!options.gpu_communicator || !reads()) return distribution.parts_of(distribution.rank);
    std::vector<int> all(static_cast<size_t>(distribution.planned().replicas));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  // Returns the devices to which a Transfer delivers.
  std::vector<DeviceId> arrive_at() const {
    if (options.gpu_communicator && !reads()) return {host()};  // no rows arrive through the Transfer
    if (options.gpu_communicator) return std::vector(parts_here().size(), options.devices[0]);
    return {options.devices.begin(), same_rows() ? options.devices.begin() + 1 : options.devices.end()};
  }

  size_t parts_for_each_gpu() const { return options.gpu_communicator ? parts_here().size() : 1; }

  std::unique_ptr<flow::Plan> make_plan(flow::PipelineSpec planned, std::shared_ptr<const flow::DataSet> data,
                                        int threads) const {
    flow::Plan::MoreMemory more;
    if (distribution.transfers())
      more = [&](const flow::Plan& of) {
        return flow::Transfer::memory(carried(on_gpus()), flow::facts_of(of), arrive_at().size());
      };
    return std::make_unique<flow::Plan>(std::move(planned), std::move(data), distribution.planned(), threads, more);
  }

  // Stores `made` under the lock, because stop() and report() may read `place` at any time.
  template <typename Part>
  void install(std::unique_ptr<Part>& place, std::unique_ptr<Part> made) {
    const std::lock_guard lock(mutex);
    place = std::move(made);
  }

  // Destroys upload, transfer and graph, in this order. The caller must not hold the lock; the destructors, which wait
  // for threads, run after this function has let go of it.
  void take_down() {
    std::unique_ptr<flow::Graph> old_graph;  // destroyed last
    std::unique_ptr<flow::Transfer> old_transfer;
    std::unique_ptr<flow::Upload> old_upload;
    const std::lock_guard lock(mutex);
    old_graph = std::move(graph);
    old_transfer = std::move(transfer);
    old_upload = std::move(upload);
  }

  // Begins the feed at `position` on all ranks together, also on those without a plan. The caller then runs the
  // transfer, and must not hold the lock.
  void begin(const flow::Position& position, RankGroup& ranks) {
    if (distribution.transfers()) {
      const std::vector<std::string> all = ranks.all_gather(reads() ? to_message(facts) : std::string());
      const std::lock_guard lock(mutex);
      facts = flow::facts_in(all[static_cast<size_t>(distribution.reader_of(distribution.rank))]);
    }
    flow::check_position(facts.identity, position);
    if (reads()) begin_graph(position);
    if (distribution.transfers()) {
      auto made = std::make_unique<flow::Transfer>(
          carried(on_gpus()), flow::Transfer::Start{.communicator = options.communicator,
                                                    .distribution = distribution,
                                                    .facts = facts,
                                                    .graph = graph.get(),
                                                    .devices = arrive_at(),
                                                    .parts = parts_here(),
                                                    .heads_only = options.gpu_communicator != nullptr,
                                                    .threads = thread_count(options, spec),
                                                    .position = position});
      install(transfer, std::move(made));
    } else {
      watch();
    }
    if (on_gpus()) begin_upload(position);
  }

  void begin_upload(const flow::Position& position) {
    const bool arrives = transfer != nullptr;
    flow::ExpectedAudit expected = arrives ? flow::ExpectedAudit{} : plan->expected_audit;
    if (expected.passes)
      expected = {.sum = {}, .why_none = "on GPUs whole epochs are compared, and this one ends within a pass"};
    auto made = std::make_unique<flow::Upload>(
        spec, flow::Upload::Start{.from = arrives ? transfer->delivery() : graph->delivery(),
                                  .facts = facts,
                                  .devices = options.devices,
                                  .same_rows = same_rows(),
                                  .between = options.gpu_communicator,
                                  .distribution = distribution,
                                  .parts = parts_for_each_gpu(),
                                  .position = position,
                                  .ledger = flow::EpochLedger(options.devices.size(), expected,
                                                              !arrives && distribution.ranks() == 1)});
    install(upload, std::move(made));
  }

  void begin_graph(const flow::Position& position) {
    std::vector<DeviceId> copied_to = options.devices;
    if (distribution.transfers()) copied_to.assign(static_cast<size_t>(plan->replicas), host());
    auto made = std::make_unique<flow::Graph>(
        *plan, flow::GraphOptions{.copied_to = std::move(copied_to),
                                  .io = options.io,
                                  .start = {.epoch = position.epoch, .step = position.step},
                                  .deliver_before_error = options.deliver_before_error});
    install(graph, std::move(made));
  }

  // For mode SPLIT: next() then asks the communicator whether another rank has failed.
  void watch() {
    if (options.communicator)
      graph->delivery().watch([communicator = options.communicator] { return communicator->failure(); });
  }

  // Returns a plan with these weights of the mixture (nullopt: those of the pipeline); null if the plan has them
  // already. The caller holds the lock.
  std::unique_ptr<flow::Plan> reweighted_plan(const std::optional<flow::Reweighted>& weights) const {
    if (!plan || !plan->spec.mixture || plan->spec.mixture->reweighted == weights) return nullptr;
    flow::PipelineSpec other = plan->spec;
    other.mixture->reweighted = weights;
    auto reweighted = make_plan(std::move(other), plan->shared_data, plan->threads);
    flow::refuse_empty_epoch(*reweighted, reweighted->data.samples);
    return reweighted;
  }

  void run_transfer() {
    if (transfer) on_cpus(spec.cpu_set, "feedline-open", [&] { transfer->run(); });
  }

  static Error was_stopped() { return Error(Category::stalled, "the feeder was stopped"); }

  // Begins the feed again at `position`: with the plan `reweighted` if it is given, else with `counted` if there is
  // one. `other_weights` says that all ranks change the mixture's weights; then a rank without a plan cannot check the
  // position beforehand, because it does not know the new number of steps. The caller holds `lock`, which is released
  // while other ranks or threads are waited for; stop() ends that wait.
  void begin_anew(std::unique_lock<std::mutex>& lock, const flow::Position& position, bool other_weights = false,
                  std::unique_ptr<flow::Plan> reweighted = nullptr) {
    if (stopped) throw was_stopped();
    std::unique_ptr<flow::Plan>& other = reweighted ? reweighted : counted;
    if (!transfer || !other_weights) flow::check_position(other ? flow::identity_of(*other) : facts.identity, position);
    if (transfer) {
      lock.unlock();
      // A rank that waits inside next() for this one must learn that this one will not come.
      if (options.gpu_communicator) options.gpu_communicator->barrier();
      transfer->end_together();
      lock.lock();
      if (stopped) throw was_stopped();
    }
    going_to = position;
    lock.unlock();
    take_down();  // the old feed goes first, so that there is memory for the new one
    std::exception_ptr failure;
    try {
      if (other) {
        const std::lock_guard relock(mutex);
        plan = std::move(other);
        facts = flow::facts_of(*plan);
      }
      // If nothing travels, each rank is set to its new place by itself.
      RankGroup ranks = distribution.transfers()
                            ? RankGroup(exchange_over(options.communicator), options.rank, options.world_size)
                            : RankGroup();
      ranks.run([&] {
        flow::compare_positions(ranks, position);
        on_cpus(spec.cpu_set, "feedline-open", [&] { begin(position, ranks); });
      });
      run_transfer();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (stopped) failure = std::make_exception_ptr(was_stopped());
    if (failure) {
      lock.unlock();
      take_down();
      lock.lock();
    }
    going_to.reset();
    if (failure) std::rethrow_exception(failure);
  }

  /// Returns what all replicas have received. While the feeder is being set to another place, that is everything before
  /// it.
  flow::Position received() const { return going_to ? *going_to : delivery().positions().last; }

  /// Returns whether the feed is at `position` and has not failed, so that it need not begin again. Returns false if
  /// rows travel: ranks could be at different places, and either all of them begin again or none.
  bool stands_at(const flow::Position& position) const {
    if (counted || distribution.transfers() || !graph || delivery().failed()) return false;
    const auto [last, first] = delivery().positions();
    return last == position && first == position;
  }

  flow::Delivery& delivery() const {
    if (upload) return upload->delivery();
    if (transfer) return transfer->delivery();
    if (!graph || distribution.transfers() || on_gpus())
      throw Error(Category::stalled,
                  "setting the feeder to another position failed, so it can feed nothing more; make a new one");
    return graph->delivery();
  }

  /// Runs `next`. If this rank's feed fails, ends the feeds of the other ranks with the same Error.
  template <typename Next>
  auto tell_failure(Next next) const {
    try {
      return next();
    } catch (const std::exception& error) {
      const auto* own = dynamic_cast<const Error*>(&error);
      const Error why = own ? *own : Error(Category::io_error, error.what());
      // A transfer itself tells the other ranks about what ends it.
      const bool mine = transfer ? upload && upload->failed() : graph && delivery().failed();
      if (options.communicator && mine) options.communicator->abort(why);
      // Other ranks may be waiting for this one inside next(), in a call of this communicator.
      if (options.gpu_communicator && upload && (upload->failed() || upload->delivery().failed()))
        options.gpu_communicator->abort(why);
      throw;
    }
  }

  flow::Delivery::Outcome next(int replica, std::optional<Clock::time_point> deadline, Batch& batch,
                               std::optional<Stream> stream = {}) {
    using Outcome = flow::Delivery::Outcome;
    check_process();
    if (options.gpu_communicator && !stream)
      throw Error(Category::bad_pipeline,
                  "next(): with options.gpu_communicator rows come on a stream: call next(replica, stream)");
    flow::Delivery::Arrive arrive;
    if (stream) arrive = [&](const Batch& come) { come.ready_on(*stream); };
    if (options.gpu_communicator && upload) {
      upload->check(*stream);
      arrive = [&](const Batch&) { upload->arrive(*stream); };
    }
    const Outcome outcome = tell_failure([&] {
      check_rows_came();
      return delivery().next(replica, deadline, batch, nullptr, arrive);
    });
    if (outcome == Outcome::end_of_epoch) {
      check_rows_came();
      note_end_of_epoch();
    }
    return outcome;
  }

  // Throws if a rank has failed: the rows of the previous batch may then not have arrived.
  void check_rows_came() const {
    if (options.gpu_communicator)
      if (const auto error = options.gpu_communicator->failure()) {
        const auto batch = upload ? upload->arrived() : std::nullopt;
        throw batch ? flow::in_step(*batch, *error) : *error;
      }
  }

  /// For index.mode LAZY: after all replicas have had the first epoch, makes the plan with its counts. The present
  /// graph continues until the feed begins again.
  void note_end_of_epoch() {
    const std::lock_guard lock(mutex);
    if (counted || !facts.lazy || delivery().report().finished_epochs == 0) return;
    flow::DataSet data = flow::counted_data(plan->spec, plan->data, *graph->counted());
    flow::sum_passes(plan->spec, data);
    counted = std::make_unique<flow::Plan>(plan->spec, std::move(data), plan->ranks, plan->threads);
    facts = flow::facts_of(*counted);
    for (const std::string& warning : counted->data.warnings) log_warning(warning);
  }

  // The caller holds the lock.
  void check_counted() const {
    if (facts.lazy)
      throw Error(Category::bad_pipeline,
                  "state: index.mode LAZY: the data is known only after the first epoch; mode BUILD counts it before");
  }

  std::string state_at(const flow::Position& position) const {
    check_counted();
    flow::check_position(facts.identity, position);
    return flow::state_text(facts.identity, position);
  }

  bool forked() const noexcept { return getpid() != process; }
  /// Throws in a forked child: it has none of the threads, and no thread that would release a lock.
  void check_process() const {
    if (forked())
      throw Error(Category::bad_pipeline,
                  "this process is a fork of the one that made the feeder, and has none of its threads; make a feeder "
                  "here, or start processes by exec or \"spawn\"");
  }
  std::unique_lock<std::mutex> locked() const {
    check_process();
    return std::unique_lock(mutex);
  }
  /// For functions that must not throw: a forked child has no other thread, so it needs no lock.
  std::unique_lock<std::mutex> locked_unless_forked() const {
    return forked() ? std::unique_lock<std::mutex>() : std::unique_lock(mutex);
  }

  // The gpu_communicator is destroyed before the transfer ends, because ranks that wait in next() for this one are told
  // only by it.
  ~Impl() {
    upload.reset();
    options.gpu_communicator.reset();
  }

  const Clock::time_point start = Clock::now();
  const pid_t process = getpid();
  Options options;
  flow::Distribution distribution;
  flow::PipelineSpec spec;
  std::vector<std::string> files, warnings;
  std::vector<ElementSpec> elements;
  std::mutex setting;  // one set_...() call at a time; locked before `mutex`
  // Guards all members below: set_state() changes them, and other threads may read them at any time.
  mutable std::mutex mutex;
  flow::FeedFacts facts;                // what is known of the data so far
  std::unique_ptr<flow::Plan> plan;     // the plan of the graph; null: another rank reads for this one
  std::unique_ptr<flow::Plan> counted;  // LAZY: the plan for the next time that the graph begins
  std::unique_ptr<flow::Graph> graph;
  std::unique_ptr<flow::Transfer> transfer;
  std::unique_ptr<flow::Upload> upload;
  std::optional<flow::Position> going_to;  // set while the feeder moves to this place
  bool stopped = false;
};

Feeder::Feeder(const Pipeline& pipeline, Options options)
    : impl_(std::make_unique<Impl>(pipeline, std::move(options))) {}

Feeder::~Feeder() {
  if (impl_->forked()) leak(std::shared_ptr<Impl>(std::move(impl_)));
}

Batch Feeder::next(int replica) {
  Batch batch;
  impl_->next(replica, std::nullopt, batch);
  return batch;
}

Batch Feeder::next(int replica, Stream stream) {
  Batch batch;
  impl_->next(replica, std::nullopt, batch, stream);
  return batch;
}

Next Feeder::next(int replica, std::chrono::nanoseconds timeout, Batch& batch) {
  using Outcome = flow::Delivery::Outcome;
  switch (impl_->next(replica, after(timeout), batch)) {
    case Outcome::batch:
      return Next::batch;
    case Outcome::end_of_epoch:
      return Next::end_of_epoch;
    case Outcome::not_ready:
      break;
  }
  return Next::not_ready;
}

bool Feeder::next_into(int replica, std::span<const NamedTensor> tensors, Stream stream) {
  Batch batch = next(replica, stream);
  if (!batch) return false;
  for (const NamedTensor& to : tensors) {
    const TensorView from = batch.at(to.name);
    if (from.dtype != to.tensor.dtype || from.shape != to.tensor.shape)
      throw Error(
          Category::bad_pipeline,
          fmt::format("next_into: '{}' is {} {} in the batch, and the memory to fill is {} {}", to.name,
                      name(from.dtype), to_string(from.shape), name(to.tensor.dtype), to_string(to.tensor.shape)));
    batch.copy_on(stream, from, to.tensor.data);
  }
  batch.release_on(stream);
  return true;
}

void Feeder::stop() noexcept {
  if (impl_->forked()) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->stopped = true;
  // A set_...() call may be waiting for the other ranks.
  if (impl_->going_to && impl_->distribution.transfers())
    impl_->options.communicator->abort(Error(Category::stalled, "its feeder was stopped"));
  if (impl_->options.gpu_communicator)
    impl_->options.gpu_communicator->abort(Error(Category::stalled, "its feeder was stopped"));
  if (impl_->upload) impl_->upload->stop();
  if (impl_->transfer) impl_->transfer->stop();
  if (impl_->graph) impl_->graph->stop();
}

std::string Feeder::get_state() const {
  const auto lock = impl_->locked();
  flow::Position position = impl_->received();
  // With deliver_before_error, the rows before an error may come as one more batch, which is no step of the epoch.
  const int64_t steps = impl_->facts.identity.steps_per_epoch;
  if (steps >= 0) position.step = std::min(position.step, steps);
  return impl_->state_at(position);
}

std::string Feeder::get_state(int64_t step) const { return get_state(epoch(), step); }

std::string Feeder::get_state(uint64_t epoch, int64_t step) const {
  const auto lock = impl_->locked();
  return impl_->state_at({epoch, step});
}

void Feeder::set_state(std::string_view text, bool accept_changes) {
  impl_->check_process();
  const std::lock_guard one_at_a_time(impl_->setting);
  std::unique_lock lock(impl_->mutex);
  impl_->check_counted();
  const auto [position, reweighted] = flow::read_state(text, impl_->facts.identity, accept_changes);
  impl_->begin_anew(lock, position, reweighted != impl_->facts.identity.reweighted, impl_->reweighted_plan(reweighted));
}

void Feeder::set_epoch(uint64_t epoch) {
  const flow::Position beginning{epoch, 0};
  impl_->check_process();
  const std::lock_guard one_at_a_time(impl_->setting);
  std::unique_lock lock(impl_->mutex);
  if (!impl_->stands_at(beginning)) impl_->begin_anew(lock, beginning);
}

void Feeder::set_weights(const std::vector<double>& weights) {
  impl_->check_process();
  const std::lock_guard one_at_a_time(impl_->setting);
  std::unique_lock lock(impl_->mutex);
  const flow::FeedIdentity& feed = impl_->facts.identity;
  if (feed.mixed_sources == 0) throw Error(Category::bad_pipeline, "set_weights: the pipeline has no mixture");
  if (weights.size() != feed.mixed_sources)
    throw Error(Category::bad_pipeline,
                fmt::format("set_weights: {} weights for {} sources", weights.size(), feed.mixed_sources));
  const auto [last, first] = impl_->delivery().positions();
  if (last != first || last.step != 0)
    throw Error(Category::bad_pipeline,
                fmt::format("set_weights: epoch {} has begun; call it when every replica has had the end of an epoch",
                            first.epoch));
  flow::Reweighted reweighted{.shares = flow::shares_of(weights)};
  if (!impl_->plan) return impl_->begin_anew(lock, last, true);
  const flow::Mixture& mixture = *impl_->plan->mixture;
  reweighted.since_epoch = mixture.epochs_go_on() ? last.epoch : 0;
  reweighted.taken = mixture.taken_before(last.epoch);
  impl_->begin_anew(lock, last, true, impl_->reweighted_plan(reweighted));
}

const std::vector<ElementSpec>& Feeder::elements() const noexcept { return impl_->elements; }

int Feeder::replicas() const noexcept { return static_cast<int>(impl_->options.devices.size()); }

uint64_t Feeder::epoch() const {
  const auto lock = impl_->locked();
  return impl_->received().epoch;
}

int64_t Feeder::steps_per_epoch() const noexcept {
  const auto lock = impl_->locked_unless_forked();
  return impl_->facts.identity.steps_per_epoch;
}

int64_t Feeder::samples_per_epoch() const noexcept {
  const auto lock = impl_->locked_unless_forked();
  return impl_->facts.samples_per_epoch;
}

const std::vector<std::string>& Feeder::files() const noexcept { return impl_->files; }

std::string Feeder::plan_text() const {
  const auto lock = impl_->locked();
  if (!impl_->on_gpus()) return impl_->facts.text;
  return impl_->facts.text +
         flow::Upload::text(impl_->spec, impl_->facts, impl_->options.devices, impl_->parts_for_each_gpu());
}

const std::vector<std::string>& Feeder::warnings() const noexcept { return impl_->warnings; }

TriedRecords Feeder::try_records(uint64_t of_each_file) const {
  flow::PipelineSpec spec;
  std::shared_ptr<const flow::DataSet> data;
  {
    const auto lock = impl_->locked();
    if (!impl_->plan) return {};
    spec = impl_->plan->spec;
    data = impl_->plan->shared_data;
  }
  // Without the lock, because this reads files.
  return flow::try_records(spec, *data, of_each_file);
}

std::optional<EpochAudit> Feeder::audit_ranks() {
  impl_->check_process();
  std::optional<flow::FinishedEpoch> mine;
  {
    const std::lock_guard lock(impl_->mutex);
    const bool together =
        impl_->options.communicator && !impl_->distribution.transfers() && impl_->distribution.ranks() > 1;
    if (!together) return impl_->delivery().report().last_epoch;
    mine = impl_->delivery().last_sums();
  }
  // Without the lock, because this waits for other ranks.
  return flow::judge_together(exchange_over(impl_->options.communicator), impl_->distribution.data_parallel_ranks,
                              mine);
}

Report Feeder::report() const {
  const auto lock = impl_->locked();
  const flow::DeliveryReport delivered = impl_->going_to ? flow::DeliveryReport() : impl_->delivery().report();
  Report report;
  report.records = delivered.records;
  report.steps = delivered.steps;
  report.dropped =
      delivered.finished_epochs * static_cast<uint64_t>(std::max<int64_t>(0, impl_->facts.dropped_per_epoch));
  report.filler = delivered.filler;
  report.audit = delivered.audit;
  report.last_epoch = delivered.last_epoch;
  report.differing_epochs = delivered.differing_epochs;
  if (delivered.first_batch) {
    report.first_batch_s = seconds(*delivered.first_batch - impl_->start);
    report.wall_s = seconds(Clock::now() - *delivered.first_batch);
  }
  report.next_us = {delivered.next.quantile_us(0.5), delivered.next.quantile_us(0.99), delivered.next.max_us(),
                    delivered.next.histogram_us()};
  if (delivered.next_calls > 0)
    report.data_readiness = static_cast<double>(delivered.next_ready) / static_cast<double>(delivered.next_calls);
  for (size_t stage = 0; stage < flow::stage_count; stage++) {
    const double waited = delivered.waited_s[stage];
    report.next_wait_s += waited;
    if (waited > 0) report.waited_s.emplace_back(flow::name(static_cast<flow::Stage>(stage)), waited);
  }
  std::stable_sort(report.waited_s.begin(), report.waited_s.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  const bool all_ready = delivered.next_calls > 0 && delivered.next_ready == delivered.next_calls;
  if (!report.waited_s.empty() && !all_ready) report.waited_for = report.waited_s.front().first;
  report.distribute_mode =
      config::Distribute::Mode_Name(static_cast<config::Distribute::Mode>(impl_->distribution.mode));
  if (impl_->on_gpus())
    report.outputs = flow::Upload::outputs(impl_->spec, impl_->facts);
  else
    for (const flow::OutputSpec& output : impl_->spec.outputs)
      if (!output.internal) report.outputs.emplace_back(output.name, "made on the host");
  if (impl_->graph) add_reading(report, impl_->plan->data, *impl_->graph);
  if (impl_->transfer) {
    // The rank that reads audits all parts that it sends, so its graph's audit is reported.
    const flow::DeliveryReport parts = impl_->graph ? impl_->graph->delivery().report() : flow::DeliveryReport{};
    report.last_epoch = parts.last_epoch;
    report.differing_epochs = parts.differing_epochs;
    const flow::TransferReport transfer = impl_->transfer->report();
    report.bytes_sent = transfer.bytes_sent;
    report.bytes_received = transfer.bytes_received;
    report.stages.push_back(transfer.stage);
  }
  if (impl_->upload) {
    report.bytes_copied = impl_->upload->bytes_uploaded();
    report.bytes_between_gpus = impl_->upload->bytes_between_gpus();
    report.bytes_sent += impl_->upload->bytes_sent();
    report.bytes_received += impl_->upload->bytes_received();
    for (StageReport& stage : impl_->upload->report()) report.stages.push_back(std::move(stage));
  }
  return report;
}

}  // namespace feedline
