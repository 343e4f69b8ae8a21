#include "feedline/data_parallel.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/keep_for_ever.h"
#include "base/thread.h"
#include "data_parallel/buckets.h"
#include "feedline/error.h"
#include "gpu/reduction.h"

namespace feedline {
namespace {

// How the gradients of a bucket come to those who apply them, and values back.
class Exchanger {
 public:
  virtual ~Exchanger() = default;
  /// The sum of all ranks' gradients, on those who apply them.
  virtual void reduce(Bucket& bucket) = 0;
  virtual bool applies(const Bucket& bucket) const = 0;
  /// Whether it is so on all ranks.
  virtual bool all_say(bool so) = 0;
  /// `numbers` of the owner, on all ranks.
  virtual void publish(Bucket& bucket) = 0;
  /// `numbers` of rank 0, on all.
  virtual void begin(Bucket& bucket) = 0;
  virtual int ranks() const = 0;
  virtual void abort(const Error& why) noexcept = 0;
  virtual bool failed() const = 0;

  /// What calls read and write beside the buckets.
  struct Buffers {
    std::vector<std::byte> others;  // other ranks' gradients
    int32_t vote = 0;
  };
  const std::shared_ptr<Buffers> buffers = std::make_shared<Buffers>();
  virtual void keep_buffers() const { keep_for_ever(buffers); }
};

bool agree(Communicator& communicator, bool so, int32_t& vote) {
  vote = so;
  communicator.all_reduce({&vote, DType::int32, {1}}, Reduction::min, Stream::host);
  return vote != 0;
}

// All ranks in one group.
class InOneGroup : public Exchanger {
 public:
  explicit InOneGroup(std::shared_ptr<Communicator> all) : all_(std::move(all)) {}
  bool all_say(bool so) override { return agree(*all_, so, buffers->vote); }
  void begin(Bucket& bucket) override { all_->broadcast(bucket.number_bytes(), 0, Stream::host); }
  int ranks() const override { return all_->size(); }
  void abort(const Error& why) noexcept override { all_->abort(why); }
  bool failed() const override { return all_->failure().has_value(); }

 protected:
  const std::shared_ptr<Communicator> all_;
};

class AllReduce final : public InOneGroup {
 public:
  using InOneGroup::InOneGroup;
  void reduce(Bucket& bucket) override { all_->all_reduce(bucket.tensor(), Reduction::sum, Stream::host); }
  bool applies(const Bucket&) const override { return true; }
  void publish(Bucket&) override {}  // nobody owns any
};

class ToOwners final : public InOneGroup {
 public:
  using InOneGroup::InOneGroup;
  void reduce(Bucket& bucket) override {
    using Part = Communicator::Part;
    const int rank = all_->rank();
    if (rank != bucket.owner) {
      const Part mine{bucket.owner, bucket.gradient};
      all_->send_receive({&mine, 1}, {}, Stream::host);
      return;
    }
    const size_t bytes = bucket.gradient.size();
    buffers->others.resize(bytes * static_cast<size_t>(ranks()));
    std::vector<Part> receives;
    std::vector<const std::byte*> from;
    for (int other = 0; other < ranks(); other++) {
      const std::span theirs = std::span(buffers->others).subspan(static_cast<size_t>(other) * bytes, bytes);
      if (other != rank) receives.push_back({other, theirs});
      from.push_back(other == rank ? bucket.gradient.data() : theirs.data());
    }
    all_->send_receive({}, receives, Stream::host);
    gpu::reduce(from, bucket.dtype, Reduction::sum, bucket.elements, bucket.gradient.data());
  }
  bool applies(const Bucket& bucket) const override { return bucket.owner == all_->rank(); }
  void publish(Bucket& bucket) override { all_->broadcast(bucket.number_bytes(), bucket.owner, Stream::host); }
};

// All-reduced inside a machine; between machines as the leaders do it.
class ByMachine final : public Exchanger {
 public:
  ByMachine(std::shared_ptr<Communicator> machine, std::shared_ptr<Communicator> leaders)
      : machine_(std::move(machine)) {
    if ((machine_->rank() == 0) != (leaders != nullptr))
      throw Error(Category::bad_pipeline, "distributed_replicated: rank 0 of each machine is its leader, nobody else");
    ranks_ = machine_->size();
    if (leaders) {
      leaders_.emplace(leaders);
      leaders->all_reduce({&ranks_, DType::int32, {1}}, Reduction::sum, Stream::host);
    }
    machine_->broadcast(std::as_writable_bytes(std::span(&ranks_, 1)), 0, Stream::host);
  }
  void reduce(Bucket& bucket) override {
    machine_->all_reduce(bucket.tensor(), Reduction::sum, Stream::host);
    if (leaders_) leaders_->reduce(bucket);
  }
  bool applies(const Bucket& bucket) const override { return leaders_ && leaders_->applies(bucket); }
  bool all_say(bool so) override {
    int32_t& vote = buffers->vote;
    so = agree(*machine_, so, vote);
    if (leaders_) vote = leaders_->all_say(so);
    machine_->broadcast(std::as_writable_bytes(std::span(&vote, 1)), 0, Stream::host);
    return vote != 0;
  }
  void publish(Bucket& bucket) override {
    if (leaders_) leaders_->publish(bucket);
    machine_->broadcast(bucket.number_bytes(), 0, Stream::host);
  }
  void begin(Bucket& bucket) override {
    if (leaders_) leaders_->begin(bucket);
    machine_->broadcast(bucket.number_bytes(), 0, Stream::host);
  }
  int ranks() const override { return ranks_; }
  void abort(const Error& why) noexcept override {
    machine_->abort(why);
    if (leaders_) leaders_->abort(why);
  }
  bool failed() const override { return machine_->failure() || (leaders_ && leaders_->failed()); }
  void keep_buffers() const override {
    Exchanger::keep_buffers();
    if (leaders_) leaders_->keep_buffers();
  }

 private:
  const std::shared_ptr<Communicator> machine_;
  std::optional<ToOwners> leaders_;
  int32_t ranks_ = 0;
};

// A thread reduces the buckets, in their order, as they are filled. step() does the rest when it has nothing to do.
class Training final : public DataParallel {
 public:
  Training(std::unique_ptr<Exchanger> exchanger, std::vector<Variable> variables, const std::vector<int>& owners,
           Apply apply, const DataParallelOptions& options)
      : exchanger_(std::move(exchanger)),
        variables_(std::move(variables)),
        apply_(std::move(apply)),
        owners_(owners),
        buckets_(make_buckets(variables_, owners_, options.bucket_bytes)),
        places_(variables_.size()),
        ready_(variables_),
        missing_(buckets_.size()) {
    for (size_t b = 0; b < buckets_.size(); b++)
      for (size_t place = 0; place < buckets_[b].variables.size(); place++)
        places_[buckets_[b].variables[place]] = {b, place};
    for (Bucket& bucket : buckets_) {
      bucket.take_values(variables_);
      exchanger_->begin(bucket);
      bucket.give_values(variables_);
    }
    begin_step();
    thread_ = start_thread("feedline-reduce", [this] { loop(); });
  }
  ~Training() override {
    bool within_step = false;  // an error has unwound its trainer: the others must not wait for what never comes
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      within_step = ready_.any();
    }
    changed_.notify_all();
    if (within_step) exchanger_->abort(Error(Category::stalled, "its training ended within a step"));
    thread_.join();
    if (!exchanger_->failed()) return;
    exchanger_->keep_buffers();
    keep_for_ever(std::make_shared<std::vector<Bucket>>(std::move(buckets_)));
  }

  void ready(size_t variable) override {
    const auto [b, place] = places_.at(variable);
    ready_.add(variable);
    Bucket& bucket = buckets_[b];
    bucket.take_gradient(place, variables_[variable]);
    {
      const std::lock_guard lock(mutex_);
      if (--missing_[b] > 0) return;
    }
    changed_.notify_all();
  }

  bool step(float loss_scale) override {
    ready_.expect_all();
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return reduced_ == buckets_.size() || failure_; });
      if (failure_) std::rethrow_exception(failure_);
    }
    bool finite = true;
    for (Bucket& bucket : buckets_)
      if (exchanger_->applies(bucket))
        finite = finite && bucket.divide(loss_scale * static_cast<float>(exchanger_->ranks()));
    finite = exchanger_->all_say(finite);
    if (finite)
      for (Bucket& bucket : buckets_) update(bucket);
    {
      const std::lock_guard lock(mutex_);
      begin_step();
    }
    changed_.notify_all();
    return finite;
  }

  int owner(size_t variable) const override { return owners_.at(variable); }

 private:
  // Under the lock, but for the first.
  void begin_step() {
    ready_.clear();
    for (size_t b = 0; b < buckets_.size(); b++) missing_[b] = buckets_[b].variables.size();
    reduced_ = 0;
  }

  void loop() noexcept {
    for (;;) {
      size_t next = 0;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ending_ || (reduced_ < buckets_.size() && missing_[reduced_] == 0); });
        if (ending_) return;
        next = reduced_;
      }
      std::exception_ptr failed;
      try {
        exchanger_->reduce(buckets_[next]);
      } catch (...) {
        failed = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        reduced_++;
        failure_ = failed;
        ending_ = ending_ || failed;
      }
      changed_.notify_all();
    }
  }

  void update(Bucket& bucket) {
    if (exchanger_->applies(bucket)) {
      bucket.apply(apply_, variables_);
      if (bucket.owner < 0) return;  // so has everybody
      bucket.take_values(variables_);
    }
    exchanger_->publish(bucket);
    bucket.give_values(variables_);
  }

  const std::unique_ptr<Exchanger> exchanger_;
  const std::vector<Variable> variables_;
  const Apply apply_;
  const std::vector<int> owners_;
  std::vector<Bucket> buckets_;
  std::vector<std::pair<size_t, size_t>> places_;  // by variable: its bucket, and where in it
  ReadyVariables ready_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::vector<size_t> missing_;  // by bucket: variables that are not ready
  size_t reduced_ = 0;           // buckets
  bool ending_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace

DataParallel::~DataParallel() = default;

std::unique_ptr<DataParallel> replicated(std::shared_ptr<Communicator> communicator, std::vector<Variable> variables,
                                         Apply apply, const DataParallelOptions& options) {
  const std::vector<int> everybody(variables.size(), -1);
  return std::make_unique<Training>(std::make_unique<AllReduce>(std::move(communicator)), std::move(variables),
                                    everybody, std::move(apply), options);
}

std::unique_ptr<DataParallel> parameter_server(std::shared_ptr<Communicator> communicator,
                                               std::vector<Variable> variables, Apply apply,
                                               const DataParallelOptions& options) {
  const std::vector<int> owners = place_by_size(variables, communicator->size());
  return std::make_unique<Training>(std::make_unique<ToOwners>(std::move(communicator)), std::move(variables), owners,
                                    std::move(apply), options);
}

std::unique_ptr<DataParallel> distributed_replicated(std::shared_ptr<Communicator> machine,
                                                     std::shared_ptr<Communicator> leaders,
                                                     std::vector<Variable> variables, Apply apply,
                                                     const DataParallelOptions& options) {
  int32_t machines = leaders ? leaders->size() : 0;
  machine->broadcast(std::as_writable_bytes(std::span(&machines, 1)), 0, Stream::host);
  const std::vector<int> owners = place_by_size(variables, machines);
  return std::make_unique<Training>(std::make_unique<ByMachine>(std::move(machine), std::move(leaders)),
                                    std::move(variables), owners, std::move(apply), options);
}

}  // namespace feedline
