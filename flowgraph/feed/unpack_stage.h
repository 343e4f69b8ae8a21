// The stage [unpack r]: gives the batches of replica r buffers, has them written, and delivers them in their order.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "flowgraph/batch/assemble.h"
#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/batch/batch_writer.h"
#include "flowgraph/feed/bad_records.h"
#include "flowgraph/feed/delivery.h"
#include "flowgraph/feed/stage_counters.h"

namespace feedline::flow {

class UnpackStage {
 public:
  /// A batch that has a buffer; or the end of an epoch or a failure, which needs no buffer.
  struct Pending {
    Pending(BatchRows&& rows_, UnpackStage& stage_, BatchBuffer* buffer_)
        : rows(std::move(rows_)), stage(stage_), buffer(buffer_), done(!buffer) {}
    BatchRows rows;
    UnpackStage& stage;
    BatchBuffer* buffer;
    std::atomic<bool> done;
  };
  /// The functions to which the stage passes its messages. They are called on any thread, and must not block.
  struct Outlets {
    std::function<void(Pending*)> write;   // write() is to be called for this batch, on any thread
    std::function<void(int replica)> run;  // run() of this replica's stage is to be called
    std::function<void()> end;             // the feed has ended with an error: nothing new is to be read
  };

  /// Keeps references to all arguments that are references. `deliver_before_error`: whether the good rows of a step
  /// before a bad record that ends the feed are still delivered, as a shorter batch.
  UnpackStage(const Plan& plan, int replica, const BatchWriter& writer, std::shared_ptr<BatchRing> ring,
              Delivery& delivery, BadRecords& bad_records, bool deliver_before_error, const Outlets& outlets)
      : plan_(plan),
        replica_(replica),
        writer_(writer),
        ring_(std::move(ring)),
        delivery_(delivery),
        bad_records_(bad_records),
        deliver_before_error_(deliver_before_error),
        outlets_(outlets) {}

  /// Queues the batches, and does what run() does.
  void add(std::vector<BatchRows>&& batches);
  /// Gives buffers to as many queued batches as possible, and delivers the batches that are written, in their order.
  /// Only one thread at a time may be in run() or add().
  void run();
  /// Writes a batch of this stage into its buffer. May be called on any thread.
  void write(Pending& batch);

  /// Drops the batches that wait. Precondition: no thread is in run() or write().
  void clear() noexcept {
    waiting_.clear();
    pending_.clear();
  }

  BatchRing& ring() const noexcept { return *ring_; }
  StageCounters& counters() noexcept { return counters_; }
  const StageCounters& counters() const noexcept { return counters_; }

 private:
  void begin_batches();
  void deliver_done();
  bool settled(Pending& batch, std::vector<Ready>& done);
  void wait_for_many_buffers();

  const Plan& plan_;
  const int replica_;
  const BatchWriter& writer_;
  const std::shared_ptr<BatchRing> ring_;
  Delivery& delivery_;
  BadRecords& bad_records_;
  const bool deliver_before_error_;
  const Outlets& outlets_;
  StageCounters counters_{"feedline unpack"};

  // Used only by run(), add() and clear().
  std::deque<BatchRows> waiting_;  // batches that wait for a buffer
  std::deque<Pending> pending_;    // batches that have a buffer and wait to be delivered in their order
  bool ended_ = false;             // a step of this replica has ended the feed
};

}  // namespace feedline::flow
