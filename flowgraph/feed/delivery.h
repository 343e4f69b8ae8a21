// The end of the feed: a queue for each replica, in which finished batches wait for next().
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "feedline/batch.h"
#include "feedline/error.h"
#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/feed/delivery_ledger.h"
#include "flowgraph/feed/wait_clock.h"

namespace feedline::flow {

/// Something that a replica is given: a batch, the error that ends the feed, or the end of an epoch (then neither
/// `batch` nor `error` is set).
struct Ready {
  std::shared_ptr<const BatchContent> batch = {};
  std::shared_ptr<const Error> error = {};
  // The chunk with which the end of an epoch or the error came; null if it came with none. The chunk's slot (its
  // memory) stays in use until the replica takes this object.
  std::shared_ptr<const void> keeps = {};
  EpochEnd end = {};
  PassAudit passes = {};  // of a batch: how its audit is divided between two passes over the data
};

/// Says what has been delivered since the start, and how long next() waited for it.
struct DeliveryReport : DeliveredReport, WaitReport {
  size_t takers = 0;           // how many threads call next() for the replicas
  std::optional<Error> error;  // the Error that every further next() throws
};

/// Gives batches to replicas, which may be at most `host_prefetch` steps apart. Thread-safe.
class Delivery {
 public:
  /// `busy_stage` returns which stage has the work that next() waits for. It may be called at any time and from any
  /// thread. `together`: whether the batches of a step are put only when every replica has a buffer for the step.
  Delivery(std::vector<std::shared_ptr<BatchRing>> rings, int host_prefetch, const Position& start, EpochLedger epochs,
           std::function<Stage(int replica)> busy_stage, bool together = false);

  void put(int replica, Ready ready) { put_all(replica, std::span(&ready, 1)); }
  /// Moves the elements of `ready`, in their order, to the end of the replica's queue. Wakes its next() once.
  void put_all(int replica, std::span<Ready> ready);
  /// Notes that all batches that were begun for the replica are in its queue, and that its ring has no free buffer for
  /// the next batch. The note holds until the next put() for the replica.
  void out_of_buffers(int replica);
  /// Makes every next() from now on throw this error. Only the first call has an effect.
  void fail(std::exception_ptr error) noexcept;
  /// Makes every next() from now on throw Error stalled.
  void stop() noexcept;
  /// Returns whether next() has thrown an Error that ended the feed.
  bool failed() const noexcept { return failed_; }
  /// Sets the function that tells whether another rank has failed. Every next() calls it, and again at least once a
  /// second while it waits. If the function returns an Error, next() throws it instead of giving out a batch. The
  /// function must be cheap. Call this before the first next().
  void watch(std::function<std::optional<Error>()> failure_of_others) { others_ = std::move(failure_of_others); }

  /// Returns whether any replica has no batch ready, so that its next() waits or soon will. May be called from any
  /// thread.
  bool shortage() const noexcept { return short_replicas_ > 0; }
  /// Returns how many buffers each replica has for its batches.
  size_t buffers() const {
    const Lock lock(mutex_);
    return replicas_.front().ring->pool().size();
  }
  /// Sets the function that is called when the last ready batch of a replica has been taken. It is called on the thread
  /// that calls next(). Call this before the first next().
  void on_shortage(std::function<void(int replica)> tell) { tell_shortage_ = std::move(tell); }

  /// Sets the function that a next() calls each time that it has waited for `long_wait` or longer, on the thread that
  /// waits. Call this before the first next().
  void on_long_wait(std::function<void()> look) { long_waited_ = std::move(look); }

  enum class Outcome : uint8_t { batch, end_of_epoch, not_ready };
  /// A function that completes a batch before the batch counts as received. It may wait. If it throws, the next call of
  /// next() gives the same batch again.
  using Arrive = std::function<void(Batch&)>;
  /// Gives the next batch or end of an epoch to a replica. Waits for it until `deadline`, or as long as it takes if
  /// there is no deadline. Returns Outcome::not_ready if the deadline passes. At the end of an epoch, sets `end`.
  /// Throws as Feeder::next does.
  Outcome next(int replica, std::optional<std::chrono::steady_clock::time_point> deadline, Batch& batch,
               EpochEnd* end = nullptr, const Arrive& arrive = {});
  /// Returns which stage has the work that the replica's next() waits for.
  Stage busy_stage(int replica) const { return busy_stage_(replica); }

  DeliveryReport report() const;
  /// Returns the sums of the last epoch that all replicas have finished; nullopt if there is none.
  std::optional<FinishedEpoch> last_sums() const;
  size_t waiting_batches(int replica) const;
  /// Returns how many batches the caller may take for the replica before it must give one back.
  size_t spare_batches(int replica) const;
  DeliveryLedger::Positions positions() const;

 private:
  using Clock = std::chrono::steady_clock;
  void check_replica(int number) const;
  struct Replica {
    std::shared_ptr<BatchRing> ring;
    std::deque<Ready> ready;
    bool out_of_buffers = false;
    std::optional<std::thread::id> served_by;
    bool too_far_ahead = false;  // its next() waits for a slower replica
  };
  /// Returns the replica that this one is too far ahead of; nullopt if there is none.
  std::optional<size_t> laggard(size_t number) const FEEDLINE_REQUIRES(mutex_);
  void throw_if_all_is_held(size_t number) const FEEDLINE_REQUIRES(mutex_);
  void throw_if_only_the_caller_can_help(size_t number, std::optional<size_t> laggard) const FEEDLINE_REQUIRES(mutex_);
  static Batch lend(const Replica& replica, std::shared_ptr<const BatchContent> given);
  void wait_for(const Arrive& arrive, const BatchContent& content, Batch& batch, size_t number)
      FEEDLINE_REQUIRES(mutex_);
  std::string long_wait_message(size_t number, std::optional<size_t> laggard, Stage stage) const
      FEEDLINE_REQUIRES(mutex_);

  const uint64_t apart_;
  const std::function<Stage(int)> busy_stage_;
  const bool together_;
  std::function<std::optional<Error>()> others_;
  std::function<void(int)> tell_shortage_;
  std::function<void()> long_waited_;
  std::atomic<size_t> short_replicas_;  // how many replicas have an empty `ready`
  std::atomic<bool> failed_{false};
  mutable Mutex mutex_;
  std::deque<Condition> arrived_;  // by replica
  std::deque<Replica> replicas_ FEEDLINE_GUARDED_BY(mutex_);
  std::exception_ptr failure_ FEEDLINE_GUARDED_BY(mutex_);
  bool stopped_ FEEDLINE_GUARDED_BY(mutex_) = false;
  std::optional<Error> error_ FEEDLINE_GUARDED_BY(mutex_);  // DeliveryReport::error, unless failure_ is set
  WaitClock waits_ FEEDLINE_GUARDED_BY(mutex_);
  DeliveryLedger ledger_ FEEDLINE_GUARDED_BY(mutex_);
};

}  // namespace feedline::flow
