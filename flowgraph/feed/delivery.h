// The end of the feed: finished batches wait here for next(), and next() waits here for them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "feedline/batch.h"
#include "feedline/error.h"
#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/batch/epoch_ledger.h"
#include "flowgraph/feed/latency.h"
#include "flowgraph/pipeline/feed_state.h"

namespace feedline::flow {

/// After so long the log says what is waited for.
inline constexpr std::chrono::seconds long_wait{10};

/// Stages that next() can wait for.
enum class Stage : uint8_t { read, inflate, parse, unpack, transfer, upload, replica };
inline constexpr size_t stage_count = 7;
const char* name(Stage stage) noexcept;

/// Something for a replica: a batch, the end of an epoch (neither is set), or the error that ends the feed.
struct Ready {
  std::shared_ptr<const BatchContent> batch;
  std::shared_ptr<const Error> error;
  std::shared_ptr<const void> keeps;  // of an end of epoch: the slot that it holds until it is taken
  EpochEnd end = {};
  PassAudit passes = {};  // of a batch
};

/// Since the start.
struct DeliveryReport {
  uint64_t records = 0, filler = 0, audit = 0, steps = 0, finished_epochs = 0;
  std::optional<EpochAudit> last_epoch;
  uint64_t differing_epochs = 0;
  std::optional<std::chrono::steady_clock::time_point> first_batch;
  Latency next;  // first batch of each replica left out
  uint64_t next_calls = 0, next_ready = 0;
  double waited_s[stage_count] = {};  // inside next(), all replicas, since the first batch; before it, since the start
};

/// Thread-safe. Replicas are given batches at most `host_prefetch` steps apart.
class Delivery {
 public:
  /// `busy_stage` says, at any time and from any thread, which stage has the work that next() waits for. together: a
  /// step is put for no replica before each has a buffer for it.
  Delivery(std::vector<std::shared_ptr<BatchRing>> rings, int host_prefetch, const Position& start, EpochLedger ledger,
           std::function<Stage(int replica)> busy_stage, bool together = false);

  void put(int replica, Ready ready) { put_all(replica, std::span(&ready, 1)); }
  /// In their order, and taken from there. Wakes next() once.
  void put_all(int replica, std::span<Ready> ready);
  /// All that was begun has been put, and for the batch behind it the ring has no buffer. Until the next put.
  void out_of_buffers(int replica);
  /// The first call counts: from now on every next() throws it.
  void fail(std::exception_ptr error) noexcept;
  void stop() noexcept;
  /// Whether next() has thrown an Error that ended the feed.
  bool failed() const noexcept { return failed_; }
  /// Every next() asks it, again once a second at least while it waits, and throws what it says instead of giving out a
  /// batch. It has to be cheap. Before the first next().
  void watch(std::function<std::optional<Error>()> failure_of_others) { others_ = std::move(failure_of_others); }

  /// Whether a replica has nothing ready, so that its next() waits or soon will. From any thread.
  bool shortage() const noexcept { return short_replicas_ > 0; }
  /// tell: called when the last batch of a replica has been taken, on the thread that calls next(). Before the first
  /// next().
  void on_shortage(std::function<void(int replica)> tell) { tell_shortage_ = std::move(tell); }

  enum class Outcome : uint8_t { batch, end_of_epoch, not_ready };
  /// Waits until `deadline`; without one, as long as it takes. Throws as Feeder::next says.
  /// end: set at the end of an epoch. arrive: what a batch needs before it counts as received; it may wait, and where
  /// it throws the same batch comes again.
  using Arrive = std::function<void(Batch&)>;
  Outcome next(int replica, std::optional<std::chrono::steady_clock::time_point> deadline, Batch& batch,
               EpochEnd* end = nullptr, const Arrive& arrive = {});
  /// Which stage has the work that the replica's next() waits for.
  Stage busy_stage(int replica) const { return busy_stage_(replica); }

  DeliveryReport report() const;
  /// What is known of the last epoch that all replicas have finished; nullopt if there is none.
  std::optional<FinishedEpoch> last_sums() const;
  size_t waiting_batches(int replica) const;
  /// Of the replicas that are furthest behind, and ahead: what they have received.
  struct Positions {
    Position last, first;
  };
  Positions positions() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Replica {
    std::shared_ptr<BatchRing> ring;
    std::deque<Ready> ready;
    bool out_of_buffers = false;
    std::condition_variable arrived;
    uint64_t received = 0;  // batches and ends of epochs
    uint64_t steps = 0, epochs = 0;
    Position position;
    std::optional<std::thread::id> served_by;
    bool too_far_ahead = false;  // and waiting for it to change
    struct Waiting {
      Stage stage;
      Clock::time_point since;
    };
    std::optional<Waiting> waiting;
  };
  /// The replica that `replica` is too far ahead of, if any.
  const Replica* laggard(const Replica& replica) const;
  void throw_if_all_is_held(int number) const;
  void throw_if_only_the_caller_can_help(int number, const Replica& replica, const Replica* behind) const;
  static Batch lend(const Replica& replica, std::shared_ptr<const BatchContent> given);
  void wait_for(const Arrive& arrive, const BatchContent& content, Batch& batch, Replica& replica,
                std::unique_lock<std::mutex>& lock);
  void add_wait(Replica& replica);
  void begin_clock(Clock::time_point first_batch);
  void count_batch(size_t number, const BatchContent& batch, const PassAudit& passes);
  void count_end(size_t number, const EpochEnd& end);
  std::string long_wait_message(int number, const Replica* behind, Stage stage) const;

  const uint64_t apart_;
  const std::function<Stage(int)> busy_stage_;
  const bool together_;
  std::function<std::optional<Error>()> others_;
  std::function<void(int)> tell_shortage_;
  std::atomic<size_t> short_replicas_;  // those whose `ready` is empty
  mutable std::mutex mutex_;
  std::deque<Replica> replicas_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
  bool stopped_ = false;
  DeliveryReport report_;
  EpochLedger ledger_;
};

}  // namespace feedline::flow
