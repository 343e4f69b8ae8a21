// Carries batches to GPUs: copies packed rows there, and unpacks them where they arrive.
//
//   Delivery of packed batches, in    +-> [upload 0]: copy -> buffer of GPU 0 -> kernels -> Delivery -> next(0)
//   pinned memory of the host      ---+-> [upload 1]: copy -> buffer of GPU 1 -> kernels -> Delivery -> next(1)
//                 ^                                    |
//                 +------- when the copy is done ------+
//
// If all replicas are given the same rows, the rows are uploaded once, and each further GPU copies them from the GPU
// before it. A GPU that cannot read the memory of the GPU before it gets the rows from the host.
//
//   packed batches of one replica ------> [upload 0]: copy -> buffer of GPU 0 -> kernels -> Delivery -> next(0)
//                                                                 | copy
//                                                             buffer of GPU 1 -> kernels -> Delivery -> next(1)
//
// If one rank reads for others, its GPU sends the rows to the GPUs of the others. All ranks call next() for the same
// step, and next() enqueues the transfer on the stream that it is given:
//
//   the rank that reads    [upload 0]: copy -> buffer of its GPU -> Delivery -> next(0, stream): send ----> kernels
//   the other ranks        [upload 0]:         buffer of its GPU -> Delivery -> next(0, stream): receive -> kernels
//
// If every rank gets different rows, the buffers of the rank that reads have room for all parts, and each part goes to
// its own rank.
//
// A source of rows is a replica of `Start::from`. It serves one GPU, or all GPUs that are given the same rows. For each
// source, one thread gives the GPUs their work (copies and kernels) for one batch after another. This thread is ahead
// of the trainer by as many batches as there are buffers. It does not wait until the work is done: a batch is delivered
// when its work has been given to the streams (gpu/device/device_ring.h). A second thread waits for each copy and then
// releases the packed batch.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "feedline/stage_report.h"
#include "feedline/transport.h"
#include "flowgraph/batch/packing.h"
#include "flowgraph/feed/buffer_wait.h"
#include "flowgraph/feed/delivery.h"
#include "flowgraph/feed/stage_counters.h"
#include "flowgraph/plan/distribution.h"
#include "gpu/device/device_ring.h"
#include "unpack/unpack_kernel.h"

namespace feedline::flow {

class Upload {
 public:
  struct Start {
    Delivery& from;  // by replica: packed batches (flowgraph/batch/packing.h); must outlive this object
    FeedFacts facts;
    Tables tables;  // the pipeline's tables; those with on_device must be open
    std::vector<DeviceId> devices;
    bool same_rows = false;  // all replicas are given the same rows: those of `from`'s only replica
    /// The communicator between GPUs, if GPUs of different ranks exchange rows; each rank then has one replica. On the
    /// rank that reads, `from` has the rows of all parts, one for each of its replicas. On another rank `from` has only
    /// the shapes of that rank's part.
    std::shared_ptr<Transport> between = {};
    Distribution distribution = {};
    size_t parts = 1;  // how many parts `from` has for one replica
    Position position;
    EpochLedger ledger;
  };
  /// Copies the tables that lie on GPUs to the GPUs, if they are not there yet. Throws Error bad_pipeline if buffers
  /// and tables do not fit into memory.device_limit, Error device_error for a GPU that does not exist, or that has too
  /// little memory, and Error io_error if a table cannot be read.
  Upload(const PipelineSpec& spec, Start start);
  /// Waits for the work that was given to the GPUs.
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  /// Makes every next() throw Error stalled. But a next() that is inside arrive() goes on waiting for the other ranks.
  /// May be called from any thread.
  void stop() noexcept;

  /// If Start::between is set, next() must call this once for each batch that it takes. Enqueues on `stream` the
  /// transfer of the batch's packed rows between the GPUs of the ranks, and then the kernels that unpack them. So work
  /// that is enqueued on `stream` afterwards sees the whole batch. Waits until all ranks have called it for the same
  /// step. Throws Error, which ends the feeds of all ranks.
  void arrive(feedline::Stream stream);
  /// Throws Error if arrive() cannot use this stream; call it before arrive().
  void check(feedline::Stream stream) const { replicas_[0].device->check(stream); }

  /// Returns the position of the batch that arrived last.
  std::optional<Position> arrived() const;

  Delivery& delivery() noexcept { return *delivery_; }
  /// Returns whether a GPU has ended the feed.
  bool failed() const noexcept { return failed_; }
  /// Adds to `counters` how many bytes were copied to GPUs, copied between them, sent, and received since the start.
  void add_to(Counters& counters) const;
  /// Returns two reports for each replica N: "upload N" has the time that the thread worked which gives the GPU its
  /// work, "copy N" the time that the copies took on the GPU.
  std::vector<StageReport> report() const;
  /// Returns for each output its name, and a text that says where it is made.
  static std::vector<std::pair<std::string, std::string>> outputs(const PipelineSpec& spec, const FeedFacts& facts);
  /// Returns what outputs() returns, as one text for people, with the memory that is taken on each GPU.
  static std::string text(const PipelineSpec& spec, const FeedFacts& facts, const std::vector<DeviceId>& devices,
                          size_t parts);

 private:
  struct Replica {
    explicit Replica(Mutex& mutex) : buffer_wait(mutex, changed) {}
    std::vector<std::shared_ptr<const std::byte>> tables;  // by job: the table on the GPU, or null
    std::shared_ptr<gpu::DeviceRing> device;
    std::shared_ptr<BatchRing> ring;
    Condition changed;
    BufferWait buffer_wait;
    BatchBuffer* filled = nullptr;  // the buffer that was filled last
    StageCounters counters{"feedline upload"};
    std::atomic<uint64_t> copies{0}, copy_ns{0};
    std::thread uploads, finishes;
  };
  using Parts = std::vector<Batch>;
  // The copies from one source of rows (a replica of Start::from) to its GPUs.
  struct Copying {
    std::deque<Parts> in_flight;  // packed batches that are being copied, in the order of the stream
    bool no_more = false;         // no more batches will be copied
    Parts failed;                 // packed batches that GPUs may still read after a failure or the end of the feed
  };
  // A batch in the Delivery for which arrive() has not been called yet.
  struct PendingArrival {
    size_t buffer;
    Position position;
    std::vector<std::vector<std::span<std::byte>>> parts;
    std::vector<unpack::UnpackLaunch> launches;
  };

  std::optional<DeviceId> source_on_gpu(const PipelineSpec& spec, const std::vector<DeviceId>& devices,
                                        size_t replica) const;
  void end() noexcept;
  /// Runs the body of one of the two threads of a source. `first`: the number of the first replica that the source
  /// serves.
  void run(size_t first, void (Upload::*body)(size_t)) noexcept;
  void upload(size_t first);
  void finish_copies(size_t first);
  void keep_until_drained(size_t first, Parts&& packed);
  bool wait_for_room(size_t first);
  /// Takes the next batches of all parts. Returns false if the feed stops.
  bool take(size_t first, std::vector<Batch>& packed, EpochEnd& end);
  /// Gives a GPU the work of one batch. `previous`: the replica before this one, if the rows are copied from its
  /// buffer; null if they are copied from the host.
  void fill(Replica& replica, std::span<const Batch> packed, BatchBuffer& buffer, const Replica* previous);
  void exchange(const PendingArrival& arrival, feedline::Stream stream);
  bool arrival_takes_long() FEEDLINE_REQUIRES(mutex_);
  int source_of(size_t replica) const noexcept { return static_cast<int>(replica / alike_); }
  uint64_t place_of(size_t part) const noexcept;

  const PackedBatches batches_;
  const std::shared_ptr<Transport> between_;
  const Distribution distribution_;
  const size_t alike_;           // how many replicas each source serves
  const size_t parts_;           // how many parts a replica's buffer has room for
  const size_t own_;             // number of the replica's own part among these parts
  const size_t most_in_flight_;  // the maximum number of packed batches of one replica that are copied at a time
  Delivery& from_;
  std::vector<unpack::DeviceUnpacker> unpackers_;  // one for each job of batches_
  std::vector<size_t> job_order_;                  // jobs with the same kernel follow one another: one grid does them
  std::vector<size_t> tables_at_;                  // by unpacker: where its tables begin in DeviceRing::tables()
  std::unique_ptr<Delivery> delivery_;
  std::atomic<uint64_t> uploaded_{0}, between_gpus_{0}, sent_{0}, received_{0};
  std::atomic<bool> stopping_{false}, failed_{false};
  mutable Mutex mutex_;  // Replica::buffer_wait uses it, too
  std::deque<PendingArrival> pending_ FEEDLINE_GUARDED_BY(mutex_);
  std::optional<Position> arrived_ FEEDLINE_GUARDED_BY(mutex_);
  // When the current call of arrive() began; empty if there is no current call, or if the log has already warned of it.
  std::optional<std::chrono::steady_clock::time_point> arriving_since_ FEEDLINE_GUARDED_BY(mutex_);
  std::vector<Copying> copying_ FEEDLINE_GUARDED_BY(mutex_);  // by the first replica of a source
  std::deque<Replica> replicas_;
};

}  // namespace feedline::flow
