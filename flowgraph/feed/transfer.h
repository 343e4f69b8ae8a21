// Batches on their way from the ranks that read to all ranks: packed rows are sent, and unpacked where they arrive.
//
//   graph of pack(pipeline) -> next(part) -+                    +-> buffer of replica 0 -> unpack -> Delivery
//                                          +-> Communicator, -----+-> buffer of replica 1 -> ...
//                                              step by step       +-> ...
//
// A thread on each rank makes the calls, ahead of the trainer by as many batches as its buffers hold. Before each step
// all ranks meet: there a reader says what comes, and a rank that it wants to stop or to begin anew; so a feed ends
// with no call left open, and the communicator can be used for the next one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/worker_arena.h"
#include "feedline/communicator.h"
#include "feedline/stage_report.h"
#include "flowgraph/batch/packing.h"
#include "flowgraph/feed/buffer_wait.h"
#include "flowgraph/feed/delivery.h"
#include "flowgraph/feed/graph.h"
#include "flowgraph/feed/stage_counters.h"
#include "flowgraph/plan/distribution.h"

namespace feedline::flow {

/// Counters since the start.
struct TransferReport {
  uint64_t bytes_sent = 0;      // packed bytes that other ranks were given, counted for each
  uint64_t bytes_received = 0;  // that other ranks gave
  StageReport stage;
};

class Transfer {
 public:
  struct Start {
    std::shared_ptr<Communicator> communicator;
    Distribution distribution;
    FeedFacts facts;                // of this rank's reader
    Graph* graph = nullptr;         // of a reader: its parts as replicas; outlives this
    std::vector<DeviceId> devices;  // to deliver to; those on GPUs are given packed batches, to be uploaded
    std::vector<int> parts;         // of its reader, that these are given; one: all have the same
    bool heads_only = false;        // rows go another way, but for those of a reader
    int threads = 1;
    Position position;
  };
  /// Takes memory, makes no call. Throws Error where, on a rank that does not read, what arrives does not fit into
  /// memory.limit.
  Transfer(const PipelineSpec& spec, Start start);
  /// Leaves: the others' feeds end behind the steps that they have. Waits a few seconds for them to hear of it; then it
  /// aborts the communicator.
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// The ranks begin; each is to have made its own.
  void run();

  /// Ends without leaving: returns when all ranks have called it, or after stop(). Throws what has ended the feed
  /// before.
  void end_together();

  /// As Feeder::stop(): leaves, and waits for nobody.
  void stop() noexcept;

  Delivery& delivery() noexcept { return *delivery_; }
  TransferReport report() const;
  /// What its buffers take; for the plan of a rank that reads.
  static MemoryLine memory(const PipelineSpec& spec, const FeedFacts& facts, size_t replicas);

 private:
  enum class Intent : uint32_t { go_on, begin_anew, leave };
  enum class Offer : uint32_t { nothing, batch, end_of_epoch };
  /// What a rank says when all meet.
  struct StepVote {
    Intent intent = Intent::go_on;
    Offer offer = Offer::nothing;
    uint64_t epoch = 0;
    int64_t step = 0;
  };
  /// Where a step goes that nobody wants any more, when no buffer is free.
  struct Scratch {
    explicit Scratch(gpu::Memory m) : memory(std::move(m)) {}
    gpu::Memory memory;
    BatchBuffer buffer = {};
  };
  struct Head {
    std::vector<int64_t> numbers;
    int64_t rows() const { return numbers[0]; }
    std::vector<Shape> shapes() const;
  };

  void loop() noexcept;
  bool step();
  StepVote prepare();
  void meet();
  void check_words() const;
  void receive();
  static Head head_of(const Batch& part);
  void check_head(const Head& head) const;
  void send_heads();
  void send_rows();
  void broadcast_rows();
  void keep_own_rows();
  std::vector<std::span<std::byte>> spans_in(const BatchBuffer& buffer, const Head& head) const;
  void copy_to_replicas();
  BatchBuffer* take_buffer(size_t replica);
  BatchBuffer* spare_buffer();
  void deliver(size_t replica);
  void end_epoch();
  void fail() noexcept;
  void end_with(const Error& error);
  void intend(Intent intent) noexcept;

  const PipelineSpec spec_;
  const Start start_;
  const Distribution& distribution_;
  const std::vector<int> readers_;
  Communicator& communicator_;
  const PackedBatches batches_;
  std::vector<std::shared_ptr<BatchRing>> rings_;
  std::unique_ptr<Delivery> delivery_;
  WorkerArena arena_;

  // The thread's own.
  Position position_;
  bool paused_ = false;  // some rank is to begin anew: no step comes any more
  /// What calls read and write. A communicator that has failed may still do so in its own time: then it is kept.
  struct Exchanged {
    std::vector<StepVote> votes;    // of the ranks
    StepVote vote;                  // this rank's
    std::vector<Head> heads, sent;  // of the parts that come; of a reader's
    std::vector<Batch> parts;       // of a reader: this step's
    std::vector<std::shared_ptr<BatchRing>> rings;
    std::deque<Scratch> scratch;
  };
  std::shared_ptr<Exchanged> exchanged_ = std::make_shared<Exchanged>();
  std::vector<BatchBuffer*> buffers_;  // by device

  StageCounters counters_{"feedline transfer"};
  std::atomic<uint64_t> sent_{0}, received_{0};
  std::atomic<bool> waits_for_rows_{false};

  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  Intent intent_ = Intent::go_on;
  BufferWait buffer_wait_{mutex_, changed_};
  bool ended_ = true;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace feedline::flow
