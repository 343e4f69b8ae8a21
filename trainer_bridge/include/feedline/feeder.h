// Feeds training: opens the data of a pipeline and hands each replica its batches.
//
//   feedline::Feeder feeder(feedline::load_pipeline("chess.textproto"), {.devices = {feedline::host(0)}});
//   while (auto batch = feeder.next(/*replica=*/0)) {  // one thread per replica, or one thread for all in turn
//     batch->ready_on(feedline::Stream::host);
//     train(batch->at("board"), batch->at("score"));
//     batch->release_on(feedline::Stream::host);        // or let it die: the memory goes back to the feeder
//   }
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "feedline/batch.h"
#include "feedline/communicator.h"
#include "feedline/epoch_audit.h"
#include "feedline/error.h"
#include "feedline/exchange.h"
#include "feedline/export.h"
#include "feedline/io_options.h"
#include "feedline/pipeline.h"
#include "feedline/stage_report.h"
#include "feedline/tried_records.h"

namespace feedline {

struct Options {
  std::vector<DeviceId> devices = {host(0)};  // one for each replica of this process
  int rank = 0, world_size = 1;               // this process among those that feed one training
  /// An all-gather among these ranks, used while the feeder is made and not kept: see Feeder.
  Exchange exchange = {};
  /// Instead of an exchange, and of rank and world_size, which it knows: used while the feeder lives, by nobody else.
  /// It tells this rank of one that fails, and carries rows where `distribute` says REPLICATE or SCATTER.
  std::shared_ptr<Communicator> communicator = {};
  /// Of the same ranks, between their GPUs (nccl_communicator), and the feeder's alone: move it here, so that the
  /// others hear when this feeder ends. With REPLICATE or SCATTER and one replica on each rank, on that GPU; beside
  /// `communicator`, which is for all else. Rows then go from the GPU of the rank that reads to the others', inside of
  /// next(replica, stream) and next_into() alone: in the order of the steps, on that stream. So they cannot cross the
  /// collectives of a trainer that makes its own on it. Where a rank fails, streams have NcclOptions::drain to come to
  /// what they were given; after that the last batches may have any content, and the next call throws.
  std::shared_ptr<Communicator> gpu_communicator = {};
  /// Which part of each global batch this rank is given, of how many. Ranks with the same part are given the same rows,
  /// as tensor- and pipeline-parallel ones want. -1, 0: with REPLICATE the whole batch, else rank of world_size.
  int data_parallel_rank = -1, data_parallel_size = 0;
  /// Before parallelism.threads, if not 0. Where that is 0, too: the CPUs that this process may use, divided by the
  /// ranks that torchrun, mpirun or srun has started on this machine, unless each was bound to CPUs of its own.
  int threads = 0;
  uint64_t epoch = 0;  // to begin with
  IoOptions io = {};
  /// With errors raised: the good rows before the error, too few for a step, come as a last shorter batch.
  bool deliver_before_error = false;
  /// Told while the data is being counted: bytes done, bytes in all (of this rank's share, where there is an exchange).
  /// From any thread, one at a time; throwing stops.
  std::function<void(uint64_t done, uint64_t total)> on_progress = {};
};

/// Since the feeder was made or last set to a place. Thread-safe to take; counters are exact when no next() is running.
struct Report {
  uint64_t records = 0;  // samples delivered, filler left out
  uint64_t steps = 0;    // that all replicas have received
  uint64_t dropped = 0;  // samples of finished epochs that DROP left out
  uint64_t filler = 0;   // rows that were padding or stood in for a bad record
  uint64_t errors_total = 0;
  std::vector<Error> errors;  // the first 100 bad records, in order of discovery
  /// Which samples were delivered, whatever their order: the sum mod 2^64, over the delivered samples, of the key of
  /// their file times mix64(mix64(offset of the record) ^ stored CRC) (base/audit.h). Adds up over replicas and ranks.
  uint64_t audit = 0;
  std::optional<EpochAudit> last_epoch;  // what the last finished one adds up to
  uint64_t differing_epochs = 0;         // that did not add up to what the indexes say; 0 is right
  uint64_t bytes_read = 0;               // from files, for the feed (the counting pass left out)
  std::string distribute_mode;           // the pipeline's
  uint64_t bytes_sent = 0;          // packed rows that other ranks were given, counted for each; SCATTER, REPLICATE
  uint64_t bytes_received = 0;      // and that they gave
  uint64_t bytes_copied = 0;        // to GPUs, from the host
  uint64_t bytes_between_gpus = 0;  // of REPLICATE: from each replica's GPU to the next one's, in this process
  uint64_t layout_hits = 0;         // records that had the byte layout of the one before them
  double count_s = 0;               // the counting pass
  double first_batch_s = 0;         // construction to the first batch
  double wall_s = 0;                // since the first batch
  struct {
    double p50 = 0, p99 = 0, max = 0;
    std::vector<std::pair<double, uint64_t>> histogram;  // ascending: calls that took up to so long, and how many
  } next_us;                                             // how long next() took, first batch of each replica left out
  double data_readiness = 1;                             // share of next() calls that found their batch ready
  /// How long next() has waited, all replicas together, since the first batch (before it: since the start). Its share
  /// of wall_s times the replicas is the time that trainers have lost.
  double next_wait_s = 0;
  std::vector<std::pair<std::string, double>> waited_s;  // the same by the stage that it waited for, the longest first
  std::string waited_for;  // the first of these; empty where every call found its batch ready
  std::vector<std::pair<std::string, std::string>> outputs;  // by name: where each is made, in words
  std::string backend;                                       // what reads the files, and why
  std::vector<StageReport> stages;
};

enum class Next : uint8_t { batch, end_of_epoch, not_ready };

/// Where the pipeline's `distribute` says so, rows travel between ranks, as they are stored, and each rank unpacks what
/// it is given. SPLIT: nothing travels, each rank reads its part. REPLICATE: all replicas of ranks with the same
/// data_parallel_rank are given the same rows; the first of these ranks reads. SCATTER: rank 0 reads for all; the
/// others need no files. Without a communicator, REPLICATE is among the replicas of this process.
///
/// With a communicator, a rank whose feed ends with an Error ends those of the others within the communicator's
/// timeout, and so does a rank that is lost. Where nothing travels the others hear of it at their next step, also when
/// batches are ready, and one that is destroyed in peace ends nobody's feed. Where rows travel the batches that have
/// arrived come first; one that stops or is destroyed ends the others' feeds, too; and all ranks set their feeders
/// together: set_state(), set_epoch() and set_weights() return when all have called them alike.
///
/// Its threads do not follow a process into its fork(). There every call that needs them throws Error bad_pipeline, and
/// the destructor frees nothing. Make the feeder after the fork, or start processes by exec, as Python's "spawn" does.
/// Leave batches that were made before it alone there.
class FEEDLINE_PUBLIC Feeder {
 public:
  /// Validates the pipeline, counts and verifies the data, plans every byte of memory, starts reading. Throws Error;
  /// also where an epoch would have no step, unless the pipeline says epoch { allow_empty: true }.
  ///
  /// With an exchange all ranks make their feeders together. Each counts a share of the data; and all are made or
  /// none: a rank that fails makes the others throw its Error, with its number. Where ranks, number of replicas,
  /// epoch, pipeline, or names, sizes or content of the files differ, all throw an Error bad_pipeline that says which
  /// rank differs, and in what. May differ: folders, index.dir, index.mode, memory, parallelism, cache, the kind of
  /// devices, threads and io. Without an exchange nobody tells ranks of what differs.
  explicit Feeder(const Pipeline& pipeline, Options options = {});
  ~Feeder();
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;

  /// The replica's next batch; waits for it. Empty: the end of the epoch, once; then the next epoch begins.
  /// Throws the run's first Error, in the order of the data: batches before the bad record come first. Throws Error
  /// stalled, at once, where only the caller could end the wait (it holds all of the replica's buffers; a replica
  /// served by this very thread is more than host_prefetch steps behind), and after stop(). std::bad_alloc, where that
  /// is what ended the run. One thread at a time per replica.
  Batch next(int replica = 0);
  /// The same with a limit; `batch` is set for Next::batch.
  Next next(int replica, std::chrono::nanoseconds timeout, Batch& batch);
  Next try_next(int replica, Batch& batch) { return next(replica, std::chrono::nanoseconds(0), batch); }

  /// The next batch, ready on a stream: next() and Batch::ready_on() in one. Where that throws for the stream (one of
  /// another kind or device), nothing is taken: the same batch comes with the next call. Where there is an
  /// options.gpu_communicator, it returns when all ranks have called it for this step, and nothing else gives out
  /// batches; then the stream is one of the GPU's that is no default stream of a thread and captures nothing, else it
  /// throws Error bad_pipeline, or device_error, and nothing is taken.
  Batch next(int replica, Stream stream);

  /// Fills memory of the caller's, of the replica's device, on `stream`: for what reads fixed addresses, as captured
  /// CUDA graphs do when they are launched again. Some or all of the batch's tensors, by name; of each, dtype and shape
  /// must be the batch's, so the last batch of an epoch is best dropped or padded. False: the end of the epoch, and
  /// nothing is filled. Throws as next(), and Error bad_pipeline for a tensor that is not the batch's. Not inside a
  /// capture.
  bool next_into(int replica, std::span<const NamedTensor> tensors, Stream stream);

  /// Wakes every next() and every set_state(), set_epoch() and set_weights(), and ends the feed; from any thread, any
  /// number of times, at once. Batches that are held stay valid.
  void stop() noexcept;

  /// What the trainer has received, as a text of at most 256 bytes of JSON; the same on all ranks, whatever their
  /// number and that of their replicas. Without a step: up to the last one that all replicas of this process have
  /// received; those that are ahead will receive the rest again, so it is best taken when all have the same step.
  std::string get_state() const;
  /// The first `step` steps of epoch(), 0 to steps_per_epoch(), or of the epoch given; for trainers that know better
  /// what they have used. Throws Error bad_pipeline for a step that there is not.
  std::string get_state(int64_t step) const;
  std::string get_state(uint64_t epoch, int64_t step) const;

  /// Goes on behind what a state says was received: computes the place, reads nothing to get there. Any number of ranks
  /// and replicas may go on with it. At any time while no next() is running; batches that are held stay valid, and keep
  /// their memory beside that of the plan. Throws Error bad_pipeline, and changes nothing, for a text that is no state,
  /// and where data or pipeline are not those of the state: it names what changed. What decides the order counts:
  /// names, sizes and content of the files, source, filter, shuffle, seed, epoch, batch, and the records that `errors`
  /// leaves out; features, outputs, parallelism, memory, index and cache do not. accept_changes: goes on at the same
  /// epoch and step though the samples there are others. With index.mode LAZY there are states once the first epoch has
  /// ended: before, this and get_state() throw Error bad_pipeline.
  void set_state(std::string_view text, bool accept_changes = false);
  /// Goes to the beginning of an epoch, as set_state; does nothing where it is there, unless the feed has failed. (As
  /// torch's DistributedSampler.set_epoch: call it before each epoch.)
  void set_epoch(uint64_t epoch);

  /// Of a mixture: other weights, one for each source, from the epoch on that comes next; kept to 2^-24 of their sum,
  /// and part of the state from then on, with 16 bytes for each source, or 22 where 2^40 samples of one or more were
  /// taken before. Between epochs, on all ranks alike: before the first next(), or when every replica has had the end
  /// of an epoch; else Error bad_pipeline. The rest as set_state(). Steps of an epoch may be others then.
  void set_weights(const std::vector<double>& weights);

  int replicas() const noexcept;
  /// Of the replica that is furthest behind.
  uint64_t epoch() const;
  /// -1: the epoch never ends (repeat: -1), or the first one has not yet ended for all replicas, and with index.mode
  /// LAZY nobody knows.
  int64_t steps_per_epoch() const noexcept;
  /// Good samples of an epoch, before the batch policy; -1 as above.
  int64_t samples_per_epoch() const noexcept;
  /// Paths by their number, as `@file` gives it.
  const std::vector<std::string>& files() const noexcept;
  /// What `feedline check` prints: stages, counts, and every byte of the memory plan.
  std::string plan_text() const;
  const std::vector<std::string>& warnings() const noexcept;

  /// Parses the first samples of each file, to tell whether the pipeline's features are what the records have: quick,
  /// whatever the size of the data, as of many or large files only some are read. Beside the feed, which it does not
  /// change. On a rank that is sent its rows it looks at nothing. Throws Error io_error.
  TriedRecords try_records(uint64_t of_each_file) const;

  Report report() const;

  /// What the last epoch that this rank has finished adds up to over all ranks; none: it has finished none. With a
  /// communicator and SPLIT all ranks call it after the same epoch, and it waits for them; it is for the end of an
  /// epoch or of the run. Otherwise it is report().last_epoch. Throws the Error of a rank that has failed, or has left.
  std::optional<EpochAudit> audit_ranks();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline
