#include "feedline/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/thread.h"
#include "feedline/error.h"
#include "gpu/device/device_name.h"
#include "gpu/device/trace.h"
#include "ranks/current_error.h"
#include "training/buckets.h"

namespace feedline {
namespace {

// Sends the gradients of a bucket to the ranks that apply them, and the new values back. Each synchronous training mode
// has an Exchanger of its own. `here` is the device on which the variables lie, and `home` the device on which
// gradients are applied (see Places).
class Exchanger {
 public:
  virtual ~Exchanger() = default;
  /// Allocates what the other calls need. Called once, before them.
  virtual void prepare(const std::vector<Bucket>& buckets) = 0;
  /// Begins a step, in which reduce() is called for these buckets in their order, and then agree() for `verdict`, if
  /// that is not null.
  virtual void begin_step(const std::vector<Bucket>&, const Verdict* /*verdict*/) {}
  /// Sums the gradients that the ranks have `here`. Afterwards the ranks that apply the bucket have the sum at `home`.
  virtual void reduce(Bucket& bucket) = 0;
  /// Returns whether this rank applies the bucket's gradients.
  virtual bool applies(const Bucket& bucket) const = 0;
  /// Combines the flags that lie at `home` on all ranks that apply gradients. Afterwards the flag that lies `here`
  /// says, on every rank, whether the gradients are finite on all ranks.
  virtual void agree(Verdict& verdict) = 0;
  /// Copies the bucket's new values from the `home` of its owner to `here` on all ranks.
  virtual void publish(Bucket& bucket) = 0;
  /// Copies the bucket's first values, which rank 0 has `here`, to all ranks, both to `here` and to `home`.
  virtual void begin(Bucket& bucket) = 0;
  virtual int ranks() const = 0;
  /// Aborts all communicators. If one of them has failed with `why`, this tells the ranks of the other communicators.
  virtual void abort(const Error& why) noexcept = 0;
  virtual std::optional<Error> failure() const = 0;
};

// If the queue is on a GPU, reduces the largest bucket once, whatever its memory contains. The first reduction between
// GPUs allocates memory, and an allocation during the training would wait for queued kernels that exchange data with
// other ranks.
void reduce_once(const TrainingCommunicator& communicator, const std::vector<Bucket>& buckets,
                 const gpu::Queue& queue) {
  if (queue.device().kind == DeviceId::Kind::host || buckets.empty()) return;
  const auto& largest = *std::ranges::max_element(buckets, {}, &Bucket::gradient_bytes);
  communicator->all_reduce(largest.tensor_at(&queue == &largest.places->home() ? largest.home : largest.here),
                           Reduction::sum, Stream::host);
}

// Returns the all-reduces of all buckets' gradients, for Communicator::announce().
std::vector<Communicator::AllReduce> all_reduces(const std::vector<Bucket>& buckets) {
  std::vector<Communicator::AllReduce> calls;
  for (const Bucket& bucket : buckets) calls.push_back({bucket.tensor_at(bucket.here), Reduction::sum});
  return calls;
}

// The functions that the Exchangers of all modes with a single communicator have in common.
class WithOneCommunicator : public Exchanger {
 public:
  WithOneCommunicator(std::shared_ptr<Communicator> all, Places& places)
      : all_(std::move(all), places), home_(places.home()) {}
  void agree(Verdict& verdict) override {
    const auto [flag, reduction] = agreement(verdict);
    all_->all_reduce(flag, reduction, home_.stream());
    verdict.home_to_here();
  }
  void begin(Bucket& bucket) override {
    bucket.numbers_to_home();
    all_->broadcast(bucket.numbers_at(bucket.home), 0, home_.stream());
    bucket.numbers_to_here();
  }
  int ranks() const override { return all_->size(); }
  void abort(const Error& why) noexcept override { all_->abort(why); }
  std::optional<Error> failure() const override { return all_->failure(); }

 protected:
  Communicator::AllReduce agreement(const Verdict& verdict) const {
    return {{verdict.at(home_), DType::int32, {1}}, Reduction::min};
  }

  const TrainingCommunicator all_;
  gpu::Queue& home_;
};

class AllReduce final : public WithOneCommunicator {
 public:
  using WithOneCommunicator::WithOneCommunicator;
  void prepare(const std::vector<Bucket>& buckets) override { reduce_once(all_, buckets, home_); }
  void begin_step(const std::vector<Bucket>& buckets, const Verdict* verdict) override {
    std::vector<Communicator::AllReduce> calls = all_reduces(buckets);
    if (verdict) calls.push_back(agreement(*verdict));
    all_->announce(calls);
  }
  void reduce(Bucket& bucket) override {
    bucket.gradient_to_home();
    all_->all_reduce(bucket.tensor_at(bucket.home), Reduction::sum, home_.stream());
  }
  bool applies(const Bucket&) const override { return true; }
  void publish(Bucket& bucket) override { bucket.numbers_to_here(); }
};

class ToOwners final : public WithOneCommunicator {
 public:
  using WithOneCommunicator::WithOneCommunicator;
  void reduce(Bucket& bucket) override {
    using Part = Communicator::Part;
    bucket.gradient_to_home();
    const std::span gradient = bucket.gradient_at(bucket.home);
    const int rank = all_->rank();
    if (rank != bucket.owner) {
      const Part mine{bucket.owner, gradient};
      all_->send_receive({&mine, 1}, {}, home_.stream());
      return;
    }
    std::vector<Part> receives;
    for (int other = 0; other < ranks(); other++) {
      std::byte* const place = gathered_ + static_cast<size_t>(other) * gradient.size();
      if (other == rank)
        home_.copy(place, gradient.data(), gradient.size());
      else
        receives.push_back({other, {place, gradient.size()}});
    }
    all_->send_receive({}, receives, home_.stream());
    home_.reduce({.args = {.in = gathered_,
                           .out = gradient.data(),
                           .ranks = static_cast<uint64_t>(ranks()),
                           .elements = bucket.elements},
                  .dtype = bucket.dtype,
                  .reduction = Reduction::sum});
  }
  bool applies(const Bucket& bucket) const override { return bucket.owner == all_->rank(); }
  void publish(Bucket& bucket) override {
    all_->broadcast(bucket.numbers_at(bucket.home), bucket.owner, home_.stream());
    bucket.numbers_to_here();
  }
  void prepare(const std::vector<Bucket>& buckets) override {
    size_t most = 0;
    for (const Bucket& bucket : buckets)
      if (applies(bucket)) most = std::max(most, bucket.gradient_bytes());
    gathered_ = home_.allocate(most * static_cast<size_t>(ranks()));
  }

 private:
  std::byte* gathered_ = nullptr;  // the gradients of a bucket, from all ranks
};

// All-reduces inside a machine, on the device of the variables. Between machines, the leaders (rank 0 of each machine)
// use ToOwners.
class ByMachine final : public Exchanger {
 public:
  ByMachine(std::shared_ptr<Communicator> machine, std::shared_ptr<Communicator> leaders, Places& places)
      : machine_(std::move(machine), places), here_(places.here()) {
    if ((machine_->rank() == 0) != (leaders != nullptr))
      throw Error(Category::bad_pipeline,
                  fmt::format("distributed_replicated: rank {} of a machine was given {} communicator as 'leaders'; "
                              "give this communicator to rank 0 of each machine, and to no other rank",
                              machine_->rank(), leaders ? "a" : "no"));
    if (machine_->device() != here_.device())
      throw Error(
          Category::bad_pipeline,
          fmt::format(
              "distributed_replicated: the variables are on {}, but the communicator of this machine's ranks is for "
              "memory of {}; make the communicator for the variables' device",
              device_name(here_.device()), device_name(machine_->device())));
    auto& sizes = *reinterpret_cast<std::array<int32_t, 2>*>(places.allocate_on_host(2 * sizeof(int32_t)));
    auto& [ranks, machines] = sizes;
    if (leaders) {
      leaders_.emplace(leaders, places);
      ranks = machine_->size();
      leaders->all_reduce({&ranks, DType::int32, {1}}, Reduction::sum, Stream::host);
      machines = leaders->size();
    }
    machine_->broadcast(std::as_writable_bytes(std::span(sizes)), 0, Stream::host);
    ranks_ = ranks;
    machines_ = machines;
  }
  int machines() const { return machines_; }

  void prepare(const std::vector<Bucket>& buckets) override {
    reduce_once(machine_, buckets, here_);
    if (leaders_) leaders_->prepare(buckets);
  }
  void begin_step(const std::vector<Bucket>& buckets, const Verdict*) override {
    machine_->announce(all_reduces(buckets));
  }
  void reduce(Bucket& bucket) override {
    machine_->all_reduce(bucket.tensor_at(bucket.here), Reduction::sum, here_.stream());
    if (leaders_) leaders_->reduce(bucket);
  }
  bool applies(const Bucket& bucket) const override { return leaders_ && leaders_->applies(bucket); }
  void agree(Verdict& verdict) override {
    if (leaders_) {
      here_.wait();
      if (const auto failure = machine_->failure()) throw *failure;  // after a failure the sums are undefined
      leaders_->agree(verdict);
    }
    pass_on(std::as_writable_bytes(std::span(verdict.at(here_), 1)));
  }
  void publish(Bucket& bucket) override {
    if (leaders_) leaders_->publish(bucket);
    pass_on(bucket.numbers_at(bucket.here));
  }
  void begin(Bucket& bucket) override {
    if (leaders_) leaders_->begin(bucket);
    pass_on(bucket.numbers_at(bucket.here));
  }
  int ranks() const override { return ranks_; }
  void abort(const Error& why) noexcept override {
    machine_->abort(why);
    if (leaders_) leaders_->abort(why);
  }
  std::optional<Error> failure() const override {
    const auto in_machine = machine_->failure();
    return in_machine || !leaders_ ? in_machine : leaders_->failure();
  }

 private:
  void pass_on(std::span<std::byte> bytes) { machine_->broadcast(bytes, 0, here_.stream()); }

  const TrainingCommunicator machine_;
  gpu::Queue& here_;
  std::optional<ToOwners> leaders_;
  int ranks_ = 0, machines_ = 0;
};

// The synchronous training modes. A background thread reduces each bucket, in the order of the buckets, once all its
// variables are ready. step() makes all other calls of the Exchanger, after that thread has reduced the last bucket.
class Training final : public DataParallel {
 public:
  Training(std::unique_ptr<Places> places, std::unique_ptr<Exchanger> exchanger, std::vector<Variable> variables,
           const std::vector<int>& owners, Apply apply, const DataParallelOptions& options, size_t bucket_bytes)
      : places_(std::move(places)),
        exchanger_(std::move(exchanger)),
        variables_(std::move(variables)),
        apply_(std::move(apply)),
        trainer_(options.stream),
        check_finite_(options.check_finite),
        owners_(owners),
        buckets_(make_buckets(variables_, owners_, bucket_bytes, *places_)),
        bucket_of_(variables_.size()),
        ready_(variables_),
        missing_(buckets_.size()) {
    for (size_t b = 0; b < buckets_.size(); b++)
      for (const size_t variable : buckets_[b].variables) bucket_of_[variable] = b;
    try {
      // Memory is allocated before the ranks exchange anything, because on a GPU an allocation may wait for queued
      // kernels that exchange data with other ranks.
      for (Bucket& bucket : buckets_) bucket.allocate(exchanger_->applies(bucket));
      places_->here().make_marks(buckets_.size());
      exchanger_->prepare(buckets_);
      verdict_.begin(places_->home());
      exchanger_->agree(verdict_);
      begin();
      begin_step();
      start();
    } catch (...) {  // abort() ends kernels that wait for other ranks; otherwise freeing the memory would wait for them
      exchanger_->abort(current_error());
      throw;
    }
  }
  ~Training() override {
    bool within_step = false;  // whether other ranks may wait for gradients that this rank will not send
    {
      const Lock lock(mutex_);
      ending_ = true;
      within_step = ready_.any();
    }
    changed_.notify_all();
    if (within_step) exchanger_->abort(Error(Category::stalled, "its training ended within a step"));
    thread_.join();
  }

  void ready(size_t variable) override {
    const size_t b = bucket_of_.at(variable);
    // Marks the place in the stream before the background thread can begin to reduce the bucket. Does so before the
    // variable counts as ready, because mark() may throw.
    if (is_last_of(b)) places_->here().mark(b, trainer_);
    ready_.add(variable);
    {
      const Lock lock(mutex_);
      if (--missing_[b] > 0) return;
    }
    changed_.notify_all();
  }

  bool step(float loss_scale) override {
    ready_.expect_all();
    try {
      const bool finite = finish_step(loss_scale);
      steps_++;
      return finite;
    } catch (const Error& why) {
      exchanger_->abort(why);
      throw Error(why.category(), fmt::format("step {} of the training: {}", steps_, why.message()), why.place());
    } catch (...) {  // an exception of the optimizer
      exchanger_->abort(current_error());
      throw;
    }
  }

  void wait() override {
    places_->here().wait();
    throw_failure();
  }

  int owner(size_t variable) const override { return owners_.at(variable); }

 private:
  bool finish_step(float loss_scale) {
    const gpu::TraceRange range("feedline step");
    {
      Lock lock(mutex_);
      changed_.wait(lock, [&]() FEEDLINE_REQUIRES(mutex_) { return reduced_ == buckets_.size() || failure_; });
      if (failure_) std::rethrow_exception(failure_);
    }
    const float divisor = loss_scale * static_cast<float>(exchanger_->ranks());
    verdict_.begin(places_->home());
    for (Bucket& bucket : buckets_)
      if (exchanger_->applies(bucket)) bucket.divide_at(places_->home(), divisor, verdict_);
    bool finite = true;
    if (check_finite_) {
      exchanger_->agree(verdict_);
      finite = verdict_.read();
    }
    throw_failure();  // after a failure the verdict is undefined
    if (finite) update();
    {
      const Lock lock(mutex_);
      begin_step();
    }
    changed_.notify_all();
    return finite;
  }

  void throw_failure() const {
    if (const auto failure = exchanger_->failure()) {
      exchanger_->abort(*failure);
      throw *failure;
    }
  }

  // Returns whether only one variable of the bucket is not ready yet. The trainer's thread calls it without the lock,
  // because no other thread writes missing_.
  bool is_last_of(size_t bucket) const FEEDLINE_NO_THREAD_SAFETY_ANALYSIS { return missing_[bucket] == 1; }

  void begin_step() FEEDLINE_REQUIRES(mutex_) {
    ready_.clear();
    for (size_t b = 0; b < buckets_.size(); b++) missing_[b] = buckets_[b].variables.size();
    reduced_ = 0;
  }

  void start() try {
    thread_ = start_thread("feedline-reduce", [this] { loop(); });
  } catch (const std::system_error& error) {
    throw Error(Category::io_error, fmt::format("the thread of the training cannot be started: {}", error.what()));
  }

  // Runs in the background thread.
  void loop() noexcept {
    for (;;) {
      size_t next = 0;
      {
        Lock lock(mutex_);
        changed_.wait(lock, [&]() FEEDLINE_REQUIRES(mutex_) {
          return ending_ || (reduced_ < buckets_.size() && missing_[reduced_] == 0);
        });
        if (ending_) return;
        next = reduced_;
      }
      std::exception_ptr failed;
      try {
        const gpu::TraceRange range("feedline reduce");
        if (next == 0) exchanger_->begin_step(buckets_, check_finite_ ? &verdict_ : nullptr);
        places_->here().follow_mark(next);
        buckets_[next].take_gradients(variables_);
        exchanger_->reduce(buckets_[next]);
      } catch (...) {
        failed = std::current_exception();
        exchanger_->abort(current_error());
      }
      {
        const Lock lock(mutex_);
        reduced_++;
        failure_ = failed;
        ending_ = ending_ || failed;
      }
      changed_.notify_all();
    }
  }

  // Gives all ranks the values of rank 0.
  void begin() {
    places_->here().follow(trainer_);
    for (Bucket& bucket : buckets_) {
      bucket.take_values(variables_);
      exchanger_->begin(bucket);
      bucket.begin_masters();
      bucket.give_values(variables_);
    }
    places_->here().lead(trainer_);
  }

  // Applies the gradients, and gives all ranks the new values.
  void update() {
    places_->here().follow(trainer_);  // the trainer's kernels may still read the values
    for (Bucket& bucket : buckets_) {
      if (exchanger_->applies(bucket)) {
        bucket.apply(apply_, variables_, trainer_);
        // Every rank has applied the gradients to the variables themselves, so no values need to be sent.
        if (bucket.owner < 0 && !places_->apart()) continue;
        bucket.take_masters(variables_);
      }
      exchanger_->publish(bucket);
      bucket.give_values(variables_);
    }
    places_->here().lead(trainer_);
  }

  const std::unique_ptr<Places> places_;
  const std::unique_ptr<Exchanger> exchanger_;
  const std::vector<Variable> variables_;
  const Apply apply_;
  const Stream trainer_;
  const bool check_finite_;
  const std::vector<int> owners_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  // the bucket of each variable
  ReadyVariables ready_;
  Verdict verdict_{*places_};
  uint64_t steps_ = 0;  // the number of completed steps

  Mutex mutex_;
  Condition changed_;
  // For each bucket, the number of variables that are not ready. Written only by the trainer's thread.
  std::vector<size_t> missing_ FEEDLINE_GUARDED_BY(mutex_);
  size_t reduced_ FEEDLINE_GUARDED_BY(mutex_) = 0;  // the number of buckets that are reduced in this step
  bool ending_ FEEDLINE_GUARDED_BY(mutex_) = false;
  std::exception_ptr failure_ FEEDLINE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace

DataParallel::~DataParallel() = default;

std::unique_ptr<DataParallel> replicated(std::shared_ptr<Communicator> communicator, std::vector<Variable> variables,
                                         Apply apply, const DataParallelOptions& options) {
  return or_abort({communicator}, [&] {
    auto places = std::make_unique<Places>(options, communicator->device());
    const size_t bucket_bytes = bucket_bytes_of(options, communicator->device());
    auto exchanger = std::make_unique<AllReduce>(std::move(communicator), *places);
    const std::vector<int> everybody(variables.size(), -1);
    return std::make_unique<Training>(std::move(places), std::move(exchanger), std::move(variables), everybody,
                                      std::move(apply), options, bucket_bytes);
  });
}

std::unique_ptr<DataParallel> parameter_server(std::shared_ptr<Communicator> communicator,
                                               std::vector<Variable> variables, Apply apply,
                                               const DataParallelOptions& options) {
  return or_abort({communicator}, [&] {
    auto places = std::make_unique<Places>(options, communicator->device());
    const size_t bucket_bytes = bucket_bytes_of(options, communicator->device());
    const std::vector<int> owners = place_by_size(variables, communicator->size());
    auto exchanger = std::make_unique<ToOwners>(std::move(communicator), *places);
    return std::make_unique<Training>(std::move(places), std::move(exchanger), std::move(variables), owners,
                                      std::move(apply), options, bucket_bytes);
  });
}

std::unique_ptr<DataParallel> distributed_replicated(std::shared_ptr<Communicator> machine,
                                                     std::shared_ptr<Communicator> leaders,
                                                     std::vector<Variable> variables, Apply apply,
                                                     const DataParallelOptions& options) {
  return or_abort({machine, leaders}, [&] {
    auto places = std::make_unique<Places>(options, (leaders ? leaders : machine)->device());
    const size_t bucket_bytes = bucket_bytes_of(options, machine->device());  // only leaders know the leaders' device
    auto exchanger = std::make_unique<ByMachine>(std::move(machine), std::move(leaders), *places);
    const std::vector<int> owners = place_by_size(variables, exchanger->machines());
    return std::make_unique<Training>(std::move(places), std::move(exchanger), std::move(variables), owners,
                                      std::move(apply), options, bucket_bytes);
  });
}

}  // namespace feedline
