#include "feedline/feeder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/leak.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/spans.h"
#include "flowgraph/data/compare_ranks.h"
#include "flowgraph/feed/rank_audits.h"
#include "flowgraph/feed/try_records.h"
#include "flowgraph/pipeline/elements.h"
#include "flowgraph/pipeline/feed_state.h"
#include "flowgraph/plan/advice.h"
#include "gpu/device/kept_memory.h"
#include "ranks/current_error.h"
#include "trainer_bridge/batch_sample.h"
#include "trainer_bridge/feed.h"
#include "trainer_bridge/monitor/monitor.h"
#include "trainer_bridge/open_plan.h"
#include "trainer_bridge/report.h"
#include "trainer_bridge/verdict.h"

namespace feedline {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point after(std::chrono::nanoseconds timeout) {
  const auto now = Clock::now();
  return timeout > Clock::time_point::max() - now ? Clock::time_point::max() : now + timeout;
}

}  // namespace

struct Feeder::Impl {
  Impl(const Pipeline& pipeline, Options given) : setup(begin_setup(pipeline, std::move(given))) {
    RankGroup ranks(std::exchange(setup.options.exchange, {}), setup.options.rank, setup.options.world_size);
    ranks.run([&] {
      // The monitor listens before the data is counted, because counting may take long. So an address that is already
      // in use is reported at once.
      if (!setup.options.monitor.empty() && !setup.options.plan_only)
        monitor = std::make_unique<Monitor>(MonitorOptions{
            .address = setup.options.monitor, .token = setup.options.monitor_token, .rank = setup.options.rank});
      settle(setup, pipeline, ranks, monitor && ranks.size() > 1 ? monitor_places(monitor->address()) : "");
      elements = flow::elements_of(setup.spec);
      if (monitor && setup.options.devices.front().kind == DeviceId::Kind::host)
        sample = std::make_unique<BatchSample>(elements, pipeline);
      setup.on_cpus([&] {
        open_arriving_tables(setup, ranks);
        // Needs no lock, because no other thread can use this object yet.
        ranks.among(setup.distribution.readers(), [&](RankGroup& readers) FEEDLINE_NO_THREAD_SAFETY_ANALYSIS {
          plan = open_plan(setup, readers);
          if (plan->cache && !setup.options.plan_only) cache = std::make_unique<flow::CacheStore>(*plan->cache);
          facts = flow::facts_of(*plan);
        });
        begin({setup.options.epoch, 0}, ranks);
      });
      if (monitor)
        monitor->serve({.report = [this] { return report(); },
                        .plan_text = [this] { return plan_text(); },
                        .sample = [this] { return sample ? sample->json() : Json(); },
                        .places = std::move(setup.monitor_places)});
    });
    files = std::move(facts.files);
    run();
  }

  // Makes the feed that begins at `position`. The caller then calls run(). If rows are sent between ranks, all ranks
  // call begin() at the same time, also those that read no files and so have no plan. While begin() waits for other
  // ranks, it does so in calls of a communicator. So stop(), which aborts the communicators, ends that wait although
  // there is no feed yet that could be stopped.
  //
  // begin() and run() read plan, facts and feed without the lock. Only the constructor and the set_...() calls change
  // these, only one of them runs at a time, and no next() runs at the same time.
  void begin(const flow::Position& position, RankGroup& ranks)
      FEEDLINE_EXCLUDES(mutex) FEEDLINE_NO_THREAD_SAFETY_ANALYSIS {
    if (setup.route.transfer) {
      const std::vector<std::string> all = ranks.all_gather(plan ? to_message(facts) : std::string());
      const Lock lock(mutex);
      const int reader = setup.distribution.reader_of(setup.distribution.rank);
      facts = flow::facts_in(all[static_cast<size_t>(reader)], reader, setup.carried(setup.route.graph_packs()));
    }
    flow::check_position(facts.identity, position);
    if (setup.options.plan_only) return;
    auto made = std::make_unique<Feed>(setup, plan.get(), cache.get(), facts, position);
    const Lock lock(mutex);
    feed = std::move(made);
  }

  void run() FEEDLINE_EXCLUDES(mutex) {
    if (setup.route.transfer && !setup.options.plan_only)
      setup.on_cpus([&]() FEEDLINE_NO_THREAD_SAFETY_ANALYSIS { feed->run(); });
  }

  // Destroys the feed. The destructor, which waits for threads, runs without the lock.
  void take_down() FEEDLINE_EXCLUDES(mutex) {
    std::unique_ptr<Feed> old;
    const Lock lock(mutex);
    old = std::move(feed);
  }

  static Error was_stopped() { return Error(Category::stalled, "the feeder was stopped"); }
  Error has_no_feed() const {
    if (setup.options.plan_only)
      return Error(Category::bad_pipeline,
                   "this feeder was made with options.plan_only, so it has no batches; make a feeder without "
                   "options.plan_only");
    return Error(Category::stalled,
                 "an earlier call that set the feeder to a different position has failed, so this feeder has no more "
                 "batches; make a new feeder");
  }

  // Begins the feed again at `position`: with the plan `reweighted` if that is not null, else with `counted` if that is
  // not null, else with the present plan. `other_weights` says that all ranks change the mixture's weights; then a rank
  // without a plan cannot check the position beforehand, because it does not know the new number of steps. Releases the
  // lock while it waits for other ranks or threads; stop() ends that wait.
  void begin_anew(const flow::Position& position, bool other_weights = false,
                  std::unique_ptr<flow::Plan> reweighted = nullptr) FEEDLINE_REQUIRES(mutex) {
    if (setup.options.plan_only) live_feed();  // throws
    if (stopped) throw was_stopped();
    std::unique_ptr<flow::Plan>& other = reweighted ? reweighted : counted;
    const bool with_others = feed && setup.route.transfer;
    if (!with_others || !other_weights)
      flow::check_position(other ? flow::identity_of(*other) : facts.identity, position);
    if (with_others) {
      Feed& old = *feed;
      const Unlock unlocked(mutex);
      old.end_together();
    }
    if (stopped) throw was_stopped();
    going_to = position;
    std::exception_ptr failure;
    {
      const Unlock unlocked(mutex);
      // The old feed is destroyed first, so that its memory is free for the new feed. Memory for GPUs is kept and used
      // again, but not if ranks wait for one another meanwhile.
      std::optional<gpu::KeptMemory> kept;
      if (!setup.route.transfer || setup.distribution.ranks() == 1) kept.emplace();
      take_down();
      try {
        if (other) {
          const Lock relock(mutex);
          plan = std::move(other);
          facts = flow::facts_of(*plan);
        }
        // If no rows are sent between ranks, each rank moves to its new position without the other ranks.
        RankGroup ranks = setup.route.transfer ? RankGroup(exchange_over(setup.options.communicator),
                                                           setup.options.rank, setup.options.world_size)
                                               : RankGroup();
        ranks.run([&] {
          flow::compare_positions(ranks, position);
          setup.on_cpus([&] { begin(position, ranks); });
        });
        run();
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (stopped) failure = std::make_exception_ptr(was_stopped());
    if (failure) {
      const Unlock unlocked(mutex);
      take_down();
    }
    going_to.reset();
    if (failure) std::rethrow_exception(failure);
  }

  /// Returns the position up to which all replicas have received the steps. While the feeder moves to another position,
  /// returns the position to which it moves.
  flow::Position received() const FEEDLINE_REQUIRES(mutex) {
    return going_to ? *going_to : delivery().positions().last;
  }

  /// Returns whether the feed is at `position` and has not failed, so that it need not begin again. Always returns
  /// false if rows are sent between ranks, because the ranks could be at different positions, and all of them must
  /// begin again together.
  bool stands_at(const flow::Position& position) const FEEDLINE_REQUIRES(mutex) {
    if (counted || setup.route.transfer || !feed || delivery().failed()) return false;
    const auto [last, first] = delivery().positions();
    return last == position && first == position;
  }

  Feed& live_feed() const FEEDLINE_REQUIRES(mutex) {
    if (!feed) throw has_no_feed();
    return *feed;
  }
  flow::Delivery& delivery() const FEEDLINE_REQUIRES(mutex) { return live_feed().delivery(); }

  /// Notes what a replica's trainer does, for traces.
  struct Training {
    // The time of Clock at which the trainer was given its last batch, and that batch's step. `since` is 0 if there is
    // none.
    std::atomic<int64_t> since = 0, step = 0;
  };

  /// While a SpanRecording is running, records two spans: this call of next(), and the time that the trainer has worked
  /// since the replica's previous call.
  class CallSpans {
   public:
    CallSpans(Impl& impl, int replica, const Batch& batch) noexcept : batch_(batch) {
      if (!SpanRecording::goes_on() || replica < 0 || static_cast<size_t>(replica) >= impl.training.size()) return;
      training_ = &impl.training[static_cast<size_t>(replica)];
      begin_ = Clock::now();
      if (const Clock::time_point since(Clock::duration(training_->since.exchange(0))); since != Clock::time_point())
        record_span("trainer", since, begin_, training_->step);
    }
    ~CallSpans() {
      if (!training_) return;
      const auto end = Clock::now();
      const int64_t step = batch_ ? static_cast<int64_t>(batch_.step()) : -1;
      record_span("next", begin_, end, step);
      if (!batch_) return;
      training_->step = step;
      training_->since = end.time_since_epoch().count();
    }

   private:
    const Batch& batch_;
    Clock::time_point begin_;
    Training* training_ = nullptr;  // null: nothing is recorded
  };

  // Takes no lock: only set_...() calls change `feed`, and none may run at the same time.
  flow::Delivery::Outcome next(int replica, std::optional<Clock::time_point> deadline, Batch& batch,
                               std::optional<Stream> stream = {},
                               const flow::Delivery::Arrive& check = {}) FEEDLINE_NO_THREAD_SAFETY_ANALYSIS {
    check_process();
    if (setup.route.between_gpus && !stream)
      throw Error(Category::bad_pipeline,
                  "next(): with options.gpu_communicator rows arrive on a stream that the caller names, but this call "
                  "names no stream; call next(replica, stream)");
    if (!feed && setup.route.between_gpus)  // the Error of a failed rank says more than that of live_feed()
      if (const auto error = setup.options.gpu_communicator->failure()) throw *error;
    const CallSpans spans(*this, replica, batch);
    const auto outcome = live_feed().next(replica, deadline, batch, stream, check);
    if (outcome == flow::Delivery::Outcome::end_of_epoch) note_end_of_epoch();
    if (sample && sample->wanted() && batch) sample->take(batch);
    return outcome;
  }

  /// With index.mode LAZY, makes the plan with the counts of the first epoch, once all replicas have finished that
  /// epoch. The present graph continues with its own plan until the feed begins again.
  void note_end_of_epoch() FEEDLINE_EXCLUDES(mutex) {
    const Lock lock(mutex);
    if (counted || !facts.lazy || delivery().report().finished_epochs == 0) return;
    try {
      auto made = counted_plan(*plan, *feed->graph()->counted());
      facts = flow::facts_of(*made);
      counted = std::move(made);
      not_counted = nullptr;
    } catch (...) {  // next() has already taken the end of the epoch from the feed, so it must not throw
      if (!not_counted)
        log_warning(fmt::format("no state can be saved or loaded now: {}; the end of the next epoch tries again",
                                current_error().what()));
      not_counted = std::current_exception();
    }
  }

  void check_counted() const FEEDLINE_REQUIRES(mutex) {
    if (not_counted) std::rethrow_exception(not_counted);
    if (facts.lazy)
      throw Error(Category::bad_pipeline,
                  "state: with index.mode LAZY the data is counted during the first epoch, so a state can be saved or "
                  "loaded only after that epoch; wait for the end of the epoch, or use index.mode BUILD, which counts "
                  "the data at the start");
  }

  std::string state_at(const flow::Position& position) const FEEDLINE_REQUIRES(mutex) {
    check_counted();
    flow::check_position(facts.identity, position);
    return flow::state_text(facts.identity, position);
  }

  std::string plan_text() const FEEDLINE_EXCLUDES(mutex) {
    const Lock lock(mutex);
    if (!setup.route.upload) return facts.text;
    return facts.text + flow::Upload::text(setup.spec, facts, setup.options.devices, setup.route.parts_for_each_gpu);
  }

  Report report() const FEEDLINE_EXCLUDES(mutex) {
    if (setup.options.plan_only) throw has_no_feed();
    const Lock lock(mutex);
    const flow::DeliveryReport delivered = going_to || !feed ? flow::DeliveryReport() : delivery().report();
    Report report;
    add_delivery(report, delivered, start);
    if (!report.error && stopped) report.error = was_stopped();
    if (!report.error && !feed && !going_to) report.error = has_no_feed();
    report.rank = setup.options.rank;
    report.world_size = setup.options.world_size;
    report.replicas = static_cast<int>(setup.options.devices.size());
    if (feed || going_to) {
      const flow::Position at = received();
      report.epoch = at.epoch;
      report.step = at.step;
    }
    report.planned_bytes = plan ? plan->memory.bytes() : 0;
    report.epoch_steps = facts.identity.steps_per_epoch;
    report.dropped_samples =
        delivered.finished_epochs * static_cast<uint64_t>(std::max<int64_t>(0, facts.dropped_per_epoch));
    add_route(report, setup, facts);
    // The missing features are those of the records that this rank has read, even if their rows go to other ranks. So
    // if there is a transfer, takes the counts from the graph that reads for it.
    const bool reads_for_others = feed && feed->transfer() && feed->graph();
    add_missing(report, setup.spec.features, reads_for_others ? feed->graph()->delivery().report() : delivered);
    if (feed) add_feed(report, *feed);
    VerdictFacts known = verdict_facts(setup.spec);
    if (plan && !plan->data.files.empty()) {
      known.files = plan->data.files.size();
      known.file_bytes = plan->data.bytes / known.files;
    }
    report.verdict = verdict_of(report, known);
    return report;
  }

  bool forked() const noexcept { return getpid() != process; }
  /// Throws Error bad_pipeline in a forked child. The feeder's threads do not exist there, so a lock that one of them
  /// held at the fork is never released.
  void check_process() const {
    if (forked())
      throw Error(Category::bad_pipeline,
                  "this process is a fork of the process that made the feeder, and the feeder's threads exist only "
                  "there; make a new feeder in this process, or start processes by exec, as Python's \"spawn\" does");
  }
  /// A lock of the mutex that does nothing in a forked child, which has no other thread. It is for noexcept functions.
  class FEEDLINE_SCOPED_CAPABILITY LockUnlessForked {
   public:
    explicit LockUnlessForked(const Impl& impl) FEEDLINE_ACQUIRE(impl.mutex) {
      if (!impl.forked()) lock_.emplace(impl.mutex);
    }
    ~LockUnlessForked() FEEDLINE_RELEASE() {}

   private:
    std::optional<Lock> lock_;
  };

  // Destroys the gpu_communicator before the transfer, because only the destruction of the gpu_communicator ends the
  // wait of ranks that wait in next() for this rank.
  ~Impl() {
    monitor.reset();  // its thread calls report()
    if (feed) feed->end_upload();
    setup.options.gpu_communicator.reset();
  }

  const Clock::time_point start = Clock::now();
  const pid_t process = getpid();
  Setup setup;
  std::vector<Training> training{setup.options.devices.size()};  // by replica
  std::vector<std::string> files;
  std::vector<ElementSpec> elements;
  Mutex setting;  // held during a set_...() call, so that only one runs at a time; locked before `mutex`
  // Guards the members below: set_...() calls change them, and other threads may read them at any time.
  mutable Mutex mutex;
  // What this rank knows of the data: counts, identity and names.
  flow::FeedFacts facts FEEDLINE_GUARDED_BY(mutex);
  // The plan of the feed's graph; null if another rank reads for this one.
  std::unique_ptr<flow::Plan> plan FEEDLINE_GUARDED_BY(mutex);
  // The cache of the plan, which every feed uses; null if there is none.
  std::unique_ptr<flow::CacheStore> cache FEEDLINE_GUARDED_BY(mutex);
  // With index.mode LAZY: the plan for the next time that the feed begins.
  std::unique_ptr<flow::Plan> counted FEEDLINE_GUARDED_BY(mutex);
  std::exception_ptr not_counted FEEDLINE_GUARDED_BY(mutex);  // why `counted` could not be made; null: nothing is wrong
  // Null while the feeder moves to another position, and after it has failed to do so.
  std::unique_ptr<Feed> feed FEEDLINE_GUARDED_BY(mutex);
  // The position to which the feeder is moving.
  std::optional<flow::Position> going_to FEEDLINE_GUARDED_BY(mutex);
  bool stopped FEEDLINE_GUARDED_BY(mutex) = false;
  // True while audit_ranks() waits for the other ranks.
  bool auditing FEEDLINE_GUARDED_BY(mutex) = false;
  std::unique_ptr<BatchSample> sample;  // for the monitor; null if there is none, or if batches lie on GPUs
  std::unique_ptr<Monitor> monitor;     // null if options.monitor names no address; set only by the constructor
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
  const auto check = [&](const Batch& batch) {
    for (const NamedTensor& to : tensors) {
      const TensorView from = batch.at(to.name);
      if (from.dtype != to.tensor.dtype || from.shape != to.tensor.shape)
        throw Error(Category::bad_pipeline,
                    fmt::format("next_into: '{}' is {} {} in the batch, but the memory to fill is {} {}; give memory "
                                "of the batch's type and shape, or take this batch with next()",
                                to.name, name(from.dtype), to_string(from.shape), name(to.tensor.dtype),
                                to_string(to.tensor.shape)));
    }
  };
  Batch batch;
  impl_->next(replica, std::nullopt, batch, stream, check);
  if (!batch) return false;
  for (const NamedTensor& to : tensors) batch.copy_on(stream, batch.at(to.name), to.tensor.data);
  batch.release_on(stream);
  return true;
}

void Feeder::stop() noexcept {
  if (impl_->forked()) return;
  const Lock lock(impl_->mutex);
  impl_->stopped = true;
  // A set_...() call or audit_ranks() may be waiting for the other ranks.
  const Options& options = impl_->setup.options;
  if ((impl_->going_to && impl_->setup.route.transfer) || impl_->auditing)
    options.communicator->abort(Error(Category::stalled, "its feeder was stopped"));
  if (options.gpu_communicator) options.gpu_communicator->abort(Error(Category::stalled, "its feeder was stopped"));
  if (impl_->feed) impl_->feed->stop();
}

std::string Feeder::get_state() const {
  impl_->check_process();
  const Lock lock(impl_->mutex);
  flow::Position position = impl_->received();
  // With deliver_before_error, the rows before an error may come as one more batch, which is not a step of the epoch.
  const int64_t steps = impl_->facts.identity.steps_per_epoch;
  if (steps >= 0) position.step = std::min(position.step, steps);
  return impl_->state_at(position);
}

std::string Feeder::get_state(int64_t step) const { return get_state(epoch(), step); }

std::string Feeder::get_state(uint64_t epoch, int64_t step) const {
  impl_->check_process();
  const Lock lock(impl_->mutex);
  return impl_->state_at({epoch, step});
}

void Feeder::set_state(std::string_view text, bool accept_changes) {
  impl_->check_process();
  const Lock one_at_a_time(impl_->setting);
  const Lock lock(impl_->mutex);
  impl_->check_counted();
  const auto [position, reweighted] = flow::read_state(text, impl_->facts.identity, accept_changes);
  impl_->begin_anew(position, reweighted != impl_->facts.identity.reweighted,
                    impl_->plan ? with_weights(*impl_->plan, reweighted, impl_->setup) : nullptr);
}

void Feeder::set_epoch(uint64_t epoch) {
  const flow::Position beginning{epoch, 0};
  impl_->check_process();
  const Lock one_at_a_time(impl_->setting);
  const Lock lock(impl_->mutex);
  if (!impl_->stands_at(beginning)) impl_->begin_anew(beginning);
}

void Feeder::set_weights(const std::vector<double>& weights) {
  impl_->check_process();
  const Lock one_at_a_time(impl_->setting);
  const Lock lock(impl_->mutex);
  const flow::FeedIdentity& feed = impl_->facts.identity;
  if (feed.mixed_sources == 0)
    throw Error(Category::bad_pipeline, "set_weights: the pipeline has no mixture, so it has no weights to change");
  if (weights.size() != feed.mixed_sources)
    throw Error(
        Category::bad_pipeline,
        fmt::format("set_weights: {} weights were given, but the mixture has {} sources; give one weight for each "
                    "source",
                    weights.size(), feed.mixed_sources));
  const auto [last, first] = impl_->delivery().positions();
  if (last != first || last.step != 0)
    throw Error(
        Category::bad_pipeline,
        fmt::format("set_weights: epoch {} has begun; call set_weights() only after every replica has received the end "
                    "of an epoch",
                    first.epoch));
  flow::Reweighted reweighted{.shares = flow::shares_of(weights)};
  if (!impl_->plan) return impl_->begin_anew(last, true);
  const flow::Mixture& mixture = *impl_->plan->mixture;
  reweighted.since_epoch = mixture.epochs_go_on() ? last.epoch : 0;
  reweighted.taken = mixture.taken_before(last.epoch);
  impl_->begin_anew(last, true, with_weights(*impl_->plan, reweighted, impl_->setup));
}

const std::vector<ElementSpec>& Feeder::elements() const noexcept { return impl_->elements; }

int Feeder::replicas() const noexcept { return static_cast<int>(impl_->setup.options.devices.size()); }

size_t Feeder::spare_batches(int replica) const {
  impl_->check_process();
  const Lock lock(impl_->mutex);
  return impl_->delivery().spare_batches(replica);
}

uint64_t Feeder::epoch() const {
  impl_->check_process();
  const Lock lock(impl_->mutex);
  return impl_->received().epoch;
}

int64_t Feeder::steps_per_epoch() const noexcept {
  const Impl::LockUnlessForked lock(*impl_);
  return impl_->facts.identity.steps_per_epoch;
}

int64_t Feeder::samples_per_epoch() const noexcept {
  const Impl::LockUnlessForked lock(*impl_);
  return impl_->facts.samples_per_epoch;
}

const std::vector<std::string>& Feeder::files() const noexcept { return impl_->files; }

std::string Feeder::plan_text() const {
  impl_->check_process();
  return impl_->plan_text();
}

const std::vector<std::string>& Feeder::warnings() const noexcept { return impl_->setup.spec.warnings; }

std::vector<std::string> Feeder::advice() const {
  impl_->check_process();
  const Lock lock(impl_->mutex);
  if (!impl_->plan) return {};
  return flow::advice(flow::figures_of(*impl_->plan));
}

TriedRecords Feeder::try_records(uint64_t of_each_file) const {
  flow::PipelineSpec spec;
  flow::Tables tables;
  std::shared_ptr<const flow::DataSet> data;
  {
    impl_->check_process();
    const Lock lock(impl_->mutex);
    if (!impl_->plan) return {};
    spec = impl_->plan->spec;
    tables = impl_->plan->tables;
    data = impl_->plan->shared_data;
  }
  // Without the lock, because this reads files.
  return flow::try_records(spec, tables, *data, of_each_file);
}

std::optional<EpochAudit> Feeder::audit_ranks() {
  impl_->check_process();
  std::optional<flow::FinishedEpoch> mine;
  bool together = false;
  {
    const Lock lock(impl_->mutex);
    together = impl_->setup.route.audits_together;
    mine = impl_->delivery().last_sums();
    if (together && impl_->stopped) {
      impl_->setup.options.communicator->abort(Error(Category::stalled, "its feeder was stopped"));
      throw impl_->was_stopped();
    }
    impl_->auditing = together;
  }
  if (!together) return impl_->report().last_epoch;
  std::optional<EpochAudit> audit;
  std::exception_ptr failure;
  try {  // without the lock, because this waits for other ranks
    audit = flow::judge_together(exchange_over(impl_->setup.options.communicator),
                                 impl_->setup.distribution.data_parallel_ranks, mine);
  } catch (...) {
    failure = std::current_exception();
  }
  const Lock lock(impl_->mutex);
  impl_->auditing = false;
  if (failure) std::rethrow_exception(failure);
  return audit;
}

Report Feeder::report() const {
  impl_->check_process();
  return impl_->report();
}

std::string Feeder::monitor_address() const {
  return impl_->monitor ? impl_->monitor->address().text() : std::string();
}

}  // namespace feedline
