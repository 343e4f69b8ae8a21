// Carries batches from the ranks that read to all ranks: sends packed rows, and unpacks them where they arrive.
//
//   graph of pack(pipeline) -> next(part) -+                    +-> buffer of replica 0 -> unpack -> Delivery
//                                          +-> Transport, --------+-> buffer of replica 1 -> ...
//                                              step by step       +-> ...
//
// A thread on each rank makes the calls of the Transport, ahead of the trainer by as many batches as its buffers hold.
// Before each step all ranks exchange their votes (StepVote) by an all_gather(). In its vote a rank that reads (a
// reader) says what comes next, and any rank may say that it leaves, or that it begins anew (end_together()). So no
// call is under way when a feed ends, and the next feed can use the communicator.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/worker_arena.h"
#include "feedline/transport.h"
#include "flowgraph/batch/packing.h"
#include "flowgraph/feed/buffer_wait.h"
#include "flowgraph/feed/delivery.h"
#include "flowgraph/feed/graph.h"
#include "flowgraph/feed/stage_counters.h"
#include "flowgraph/plan/distribution.h"

namespace feedline::flow {

class Transfer {
 public:
  struct Start {
    std::shared_ptr<Transport> communicator;
    Distribution distribution;
    FeedFacts facts;  // facts of the feed on the rank that reads for this rank
    Tables tables;    // the pipeline's tables; those with on_device must be open
    // On a rank that reads (a reader): its graph, which must outlive this object. Replica i of the graph makes part i.
    Graph* graph = nullptr;
    std::vector<DeviceId> devices;  // by replica: the device to which its batches go; an Upload copies those for GPUs
    // A part is one of the packed batches that a reader sends for a step. By replica: the number of the part that it is
    // given; or only one number, if all replicas are given the same part.
    std::vector<int> parts;
    bool heads_only = false;  // send only Heads, because an Upload sends the rows; a reader keeps its own rows
    int threads = 1;
    Position position;
  };
  /// Allocates the buffers, but does not call the communicator. On a rank that does not read, throws Error if the
  /// batches that arrive do not fit into memory.limit.
  Transfer(const PipelineSpec& spec, Start start);
  /// Leaves the feed: the feeds of the other ranks end after the steps that they have received. Waits for at most 5 s
  /// until the other ranks know that this rank leaves. If some do not, aborts the communicator.
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// Begins the transfer. Every rank must have made its own Transfer before.
  void run();

  /// Ends the transfer on all ranks at the same step: returns when all ranks have called it, or after stop(). If an
  /// error ended the feed before, throws that error.
  void end_together();

  /// Call this when the trainer has waited long for its next batch. If another rank waits in end_together(), ends the
  /// feeds of all ranks with an Error, because this rank cannot make the same call as long as its trainer waits for a
  /// batch.
  void end_if_others_begin_anew();

  /// Leaves the feed, and does not wait for any other rank; see Feeder::stop().
  void stop() noexcept;

  Delivery& delivery() noexcept { return *delivery_; }
  /// Adds to `counters` how many bytes of packed rows were sent and received since the start.
  void add_to(Counters& counters) const;
  StageReport stage() const;
  /// Returns the memory of a Transfer's buffers, for the memory plan of a rank that reads.
  static MemoryLine memory(const PipelineSpec& spec, const FeedFacts& facts, size_t replicas);

 private:
  enum class Intent : uint32_t { go_on, begin_anew, leave };
  enum class Offer : uint32_t { nothing, batch, end_of_epoch };
  /// The vote of a rank before a step. Of a reader, `epoch` and `step` say which step it offers.
  struct StepVote {
    Intent intent = Intent::go_on;
    Offer offer = Offer::nothing;
    uint64_t epoch = 0;
    int64_t step = 0;
  };
  /// Memory for the rows of a step that this rank must still receive, but no longer wants, because it leaves or begins
  /// anew. It is used if no buffer is free.
  struct Scratch {
    explicit Scratch(gpu::Memory m) : memory(std::move(m)) {}
    gpu::Memory memory;
    BatchBuffer buffer = {};
  };
  /// Describes a part (one of the packed batches that a reader sends for a step), and is sent before the part's rows.
  /// `numbers` has the number of rows, the number of valid rows, the audit, and for each packed tensor the number of
  /// its axes and the axes themselves. Zeros follow the axes, so that all heads have the same length.
  struct Head {
    std::vector<int64_t> numbers;
    int64_t rows() const { return numbers[0]; }
    std::vector<Shape> shapes() const;
  };

  void loop() noexcept;
  bool step();
  StepVote prepare();
  void check_votes() const;
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
  BatchBuffer* scratch_buffer();
  void deliver(size_t replica);
  void end_epoch();
  void fail() noexcept;
  void end_with(const Error& error);
  void intend(Intent intent) noexcept;

  const PipelineSpec spec_;
  const Start start_;
  const Distribution& distribution_;
  const std::vector<int> readers_;
  Transport& communicator_;
  const PackedBatches batches_;
  std::vector<std::shared_ptr<BatchRing>> rings_;
  std::unique_ptr<Delivery> delivery_;
  WorkerArena arena_;

  // While thread_ runs, only it uses position_, exchanged_ and buffers_.
  Position position_;
  /// The memory that the communicator's calls read and write. A communicator that has failed may still use it at any
  /// time, so it is never freed after a failure.
  struct Exchanged {
    std::vector<StepVote> votes;    // the votes of all ranks
    StepVote vote;                  // the vote of this rank
    std::vector<Head> heads, sent;  // of the parts that arrive, and of the parts that a reader sends
    std::vector<Batch> parts;       // on a reader: the parts of this step
    std::vector<std::shared_ptr<BatchRing>> rings;
    std::deque<Scratch> scratch;
  };
  std::shared_ptr<Exchanged> exchanged_ = std::make_shared<Exchanged>();
  std::vector<BatchBuffer*> buffers_;  // by replica: the buffer of this step

  StageCounters counters_{"feedline transfer"};
  std::atomic<uint64_t> sent_{0}, received_{0};
  std::atomic<bool> waits_for_rows_{false};
  // The number of a rank that has voted to begin anew, while some ranks have not yet. No more steps come then. -1:
  // there is no such rank.
  std::atomic<int> beginner_{-1};
  std::atomic<std::chrono::steady_clock::time_point> beginner_since_{};  // valid if beginner_ is not -1

  Mutex mutex_;
  Condition changed_;
  Intent intent_ FEEDLINE_GUARDED_BY(mutex_) = Intent::go_on;
  BufferWait buffer_wait_{mutex_, changed_};
  bool ended_ FEEDLINE_GUARDED_BY(mutex_) = true;
  std::exception_ptr failure_ FEEDLINE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace feedline::flow
