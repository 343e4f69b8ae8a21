// Batches on their way to GPUs: packed rows are copied there, and unpacked where they arrive.
//
//   Delivery of packed batches, in    +-> [upload 0]: copy -> buffer of GPU 0 -> kernels -> Delivery -> next(0)
//   pinned memory of the host      ---+-> [upload 1]: copy -> buffer of GPU 1 -> kernels -> Delivery -> next(1)
//                 ^                                    |
//                 +------- when the copy is done ------+
//
// Where all replicas are given the same rows these are uploaded once, and each GPU copies them from the one before it:
//
//   packed batches of one replica ------> [upload 0]: copy -> buffer of GPU 0 -> kernels -> Delivery -> next(0)
//                                                                 | copy
//                                                             buffer of GPU 1 -> kernels -> Delivery -> next(1)
//
// Where the rows go on to GPUs of other ranks, they do so when next() is called, by all ranks for the same step, and on
// the stream that it is given:
//
//   the rank that reads    [upload 0]: copy -> buffer of its GPU -> Delivery -> next(0, stream): send ----> kernels
//   the others             [upload 0]:         buffer of its GPU -> Delivery -> next(0, stream): receive -> kernels
//
// Where each is given other rows, the reader's buffers have room for all parts, and each part goes to whom it is for.
//
// A thread for each source of rows gives its GPUs the work of one batch after another, ahead of the trainer by as many
// as there are buffers, and waits for none of it: a batch is delivered when its work has been given to the streams
// (gpu/device/device_ring.h). Another waits for the copies, whose sources then go back to whoever packs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "feedline/communicator.h"
#include "feedline/stage_report.h"
#include "flowgraph/batch/packing.h"
#include "flowgraph/feed/buffer_wait.h"
#include "flowgraph/feed/delivery.h"
#include "flowgraph/feed/stage_counters.h"
#include "flowgraph/plan/distribution.h"
#include "gpu/device/device_ring.h"
#include "gpu/unpack/unpack_kernel.h"

namespace feedline::flow {

class Upload {
 public:
  struct Start {
    Delivery& from;  // by replica: batches of pack(spec); outlives this
    FeedFacts facts;
    std::vector<DeviceId> devices;
    bool same_rows = false;  // for all: those of `from`'s only replica
    /// Between the GPUs of ranks with one replica each, if rows go on to them. `from` then has those of all parts, by
    /// replica, where this rank reads, and else nothing but the shapes of its own.
    std::shared_ptr<Communicator> between = {};
    Distribution distribution = {};
    size_t parts = 1;  // that `from` has for one replica
    Position position;
    EpochLedger ledger;
  };
  /// Throws Error bad_pipeline where the buffers do not fit into memory.device_limit, device_error for a GPU that is
  /// not there, or has no such memory.
  Upload(const PipelineSpec& spec, Start start);
  /// Waits for what was given to the GPUs.
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  /// Every next() wakes, but for one in arrive(), which waits for the other ranks; from any thread.
  void stop() noexcept;

  /// Where rows go on between ranks, of each batch that is taken: its rows come, and are unpacked, on this stream,
  /// which it is ready on. Throws Error, which ends the feeds of all; check() before says what cannot be.
  void arrive(feedline::Stream stream);
  void check(feedline::Stream stream) const { replicas_[0].device->check(stream); }

  /// Of the batch that arrived last.
  std::optional<Position> arrived() const;

  Delivery& delivery() noexcept { return *delivery_; }
  /// Whether it was a GPU that ended the feed.
  bool failed() const noexcept { return failed_; }
  /// From the host, and from GPU to GPU.
  uint64_t bytes_uploaded() const noexcept { return uploaded_; }
  uint64_t bytes_between_gpus() const noexcept { return between_gpus_; }
  /// Between ranks.
  uint64_t bytes_sent() const noexcept { return sent_; }
  uint64_t bytes_received() const noexcept { return received_; }
  /// Of each replica "upload N", the time of the thread, and "copy N", the time on the GPU.
  std::vector<StageReport> report() const;
  /// By name: where each output is made, in words.
  static std::vector<std::pair<std::string, std::string>> outputs(const PipelineSpec& spec, const FeedFacts& facts);
  /// For people: the same, and the memory of a GPU.
  static std::string text(const PipelineSpec& spec, const FeedFacts& facts, const std::vector<DeviceId>& devices,
                          size_t parts);

 private:
  struct Replica {
    explicit Replica(std::mutex& mutex) : buffer_wait(mutex, changed) {}
    std::shared_ptr<gpu::DeviceRing> device;
    std::shared_ptr<BatchRing> ring;
    std::condition_variable changed;
    BufferWait buffer_wait;
    BatchBuffer* filled = nullptr;  // last
    using Parts = std::vector<Batch>;
    std::deque<Parts> in_flight;  // packed ones, in the order of the stream
    bool no_more = false;         // will come
    StageCounters counters{"feedline upload"};
    std::atomic<uint64_t> copies{0}, copy_ns{0};
    std::thread uploads, finishes;
  };
  // What is delivered and has not arrived.
  struct Coming {
    size_t buffer;
    Position position;
    std::vector<std::vector<std::span<std::byte>>> parts;
    std::vector<gpu::UnpackLaunch> launches;
  };

  void end() noexcept;
  /// Both threads of a source, which is known by its first replica.
  void run(size_t first, void (Upload::*body)(size_t)) noexcept;
  void upload(size_t first);
  void finish_copies(size_t first);
  bool wait_for_room(Replica& replica);
  /// The next of all parts. False: the feed stops.
  bool take(size_t first, std::vector<Batch>& packed, EpochEnd& end);
  /// behind: the replica before it, whose buffer has the rows; null: the host has them.
  void fill(Replica& replica, std::span<const Batch> packed, BatchBuffer& buffer, const Replica* behind);
  void exchange(const Coming& coming, feedline::Stream stream);
  void tell_of_long_arrival(std::unique_lock<std::mutex>& lock);
  int source_of(size_t replica) const noexcept { return static_cast<int>(replica / alike_); }
  uint64_t place_of(size_t part) const noexcept;

  const PackedBatches batches_;
  const std::shared_ptr<Communicator> between_;
  const Distribution distribution_;
  const size_t alike_;           // replicas that each source has
  const size_t parts_;           // sources that a replica has, if more than one
  const size_t own_;             // of these
  const size_t most_in_flight_;  // of a replica
  Delivery& from_;
  std::vector<gpu::DeviceUnpacker> unpackers_;  // of the jobs of batches_
  std::vector<size_t> tables_at_;               // of each
  std::unique_ptr<Delivery> delivery_;
  std::atomic<uint64_t> uploaded_{0}, between_gpus_{0}, sent_{0}, received_{0};
  std::atomic<bool> stopping_{false}, failed_{false};
  mutable std::mutex mutex_;  // guards the next three, `in_flight` and `no_more`, and the waiting for buffers
  std::deque<Coming> coming_;
  std::optional<Position> arrived_;
  std::optional<std::chrono::steady_clock::time_point> arriving_since_;  // until it is told of
  std::deque<Replica> replicas_;
};

}  // namespace feedline::flow
