// Feeds training: opens the data of a pipeline and gives each replica its batches.
//
//   feedline::Feeder feeder(feedline::load_pipeline("chess.textproto"), {.devices = {feedline::host(0)}});
//   while (auto batch = feeder.next(/*replica=*/0)) {  // one thread per replica, or one thread for all in turn
//     batch->ready_on(feedline::Stream::host);
//     train(batch->at("board"), batch->at("score"));
//     batch->release_on(feedline::Stream::host);        // or destroy the batch: the memory goes back to the feeder
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
#include <vector>

#include "feedline/batch.h"
#include "feedline/communicator.h"
#include "feedline/element_spec.h"
#include "feedline/epoch_audit.h"
#include "feedline/error.h"
#include "feedline/exchange.h"
#include "feedline/export.h"
#include "feedline/io_options.h"
#include "feedline/pipeline.h"
#include "feedline/report.h"
#include "feedline/stage_report.h"
#include "feedline/tried_records.h"

namespace feedline {

struct Options {
  /// The device of each replica of this process. All are on the host, or all are GPUs.
  std::vector<DeviceId> devices = {host(0)};
  int rank = 0, world_size = 1;  // this rank's number, and the number of ranks that feed one training
  /// An all-gather among these ranks. It is used only while the feeder is made: see Feeder's constructor.
  Exchange exchange = {};
  /// Replaces `exchange`, `rank` and `world_size` (a communicator knows both numbers). The feeder uses it during its
  /// whole life, and nothing else may use it meanwhile. It tells this rank when another rank fails, and carries rows if
  /// the pipeline's `distribute` says REPLICATE or SCATTER.
  std::shared_ptr<Communicator> communicator = {};
  /// A second communicator of the same ranks that connects their GPUs (nccl_communicator). It is for REPLICATE or
  /// SCATTER where each rank has one replica, on that GPU. It carries only the rows; `communicator` carries everything
  /// else. Only the feeder may use it: pass it with std::move, so that it is destroyed together with the feeder and the
  /// other ranks notice that.
  ///
  /// With it, rows go from the GPU of the rank that reads to the GPUs of the others. This happens only inside
  /// next(replica, stream) and next_into(), in the order of the steps, on the stream of the call. So the transfers keep
  /// their order relative to the collectives that the trainer puts on that stream. After a rank has failed, transfers
  /// that are queued on a stream have NcclOptions::drain of time to finish. After that, the last batches may have any
  /// content, and the next call throws.
  std::shared_ptr<Communicator> gpu_communicator = {};
  /// Which part of each global batch this rank is given, and the number of parts. Ranks with the same part are given
  /// the same rows, as tensor- and pipeline-parallel training needs. The defaults -1 and 0 mean: with REPLICATE the
  /// whole batch, otherwise part `rank` of `world_size`.
  int data_parallel_rank = -1, data_parallel_size = 0;
  /// The number of threads. A value that is not 0 overrides the pipeline's parallelism.threads. If both are 0, the
  /// feeder takes the number of CPUs that this process may use, divided by the number of ranks that torchrun, mpirun or
  /// srun has started on this machine, unless each rank was bound to CPUs of its own.
  int threads = 0;
  uint64_t epoch = 0;  // the epoch with which the feeder begins, at most 2^63 - 1
  IoOptions io = {};
  /// Whether the feeder is only to be looked at: it counts the data and makes its plan, but it reads nothing ahead,
  /// allocates no batches, and opens no cache and no monitor. Its plan_text(), try_records(), warnings() and counts are
  /// those of a feeder that feeds; next(), report() and set_...() throw Error bad_pipeline.
  bool plan_only = false;
  /// Where the feeder shows itself over HTTP: a page for a browser at /, the report at /report.json, metrics for
  /// Prometheus at /metrics, and at /healthz whether it goes on. "127.0.0.1:9400", "[::1]:9400", or
  /// "unix:/run/feed.sock", a Unix domain socket only for this user. Port 0 takes a free one. Rank r listens at the
  /// port plus r, or at the path with ".r". Empty: nowhere.
  std::string monitor = {};
  /// What a client must send to the monitor: its password, for the user "feedline" (HTTP's Basic authentication). An
  /// address that other machines can reach needs one. It travels unencrypted.
  std::string monitor_token = {};
  /// Whether the feeder delivers the good rows before a bad record as a last, shorter batch, if they are too few for a
  /// step. This is for a pipeline whose errors are raised (errors { on_error: RAISE }).
  bool deliver_before_error = false;
  /// Called while the constructor counts the data, with the number of bytes counted so far and their total. If ranks
  /// share the counting, both numbers are those of this rank's share. Calls come from any thread, one at a time. If
  /// on_progress throws, the constructor throws the same exception.
  std::function<void(uint64_t done, uint64_t total)> on_progress = {};
};

enum class Next : uint8_t { batch, end_of_epoch, not_ready };

/// Feeds the replicas of one rank. Its methods may be called from several threads, with the limits that they state.
///
/// The pipeline's `distribute.mode` decides whether rows travel between ranks. Rows travel as they are stored, and each
/// rank unpacks what it receives.
///
///   SPLIT      Nothing travels; each rank reads its own part.
///   REPLICATE  All replicas of the ranks with the same data_parallel_rank are given the same rows; the first of these
///              ranks reads. Without a communicator, this is among the replicas of this process.
///   SCATTER    Rank 0 reads for all ranks; the others need no files but the headers of tables.
///
/// With a communicator, a rank whose feed ends with an Error also ends the feeds of the other ranks, within the
/// communicator's timeout; so does a rank that is lost. If nothing travels, the other ranks learn of it at their next
/// step, even if batches are ready, and a feeder that is destroyed normally does not end the feeds of others. If rows
/// travel, the batches that have arrived come first; a feeder that is stopped or destroyed ends the feeds of the others
/// as well; and all ranks must set their feeders together: set_state(), set_epoch() and set_weights() return when all
/// ranks have called them with the same arguments.
///
/// A feeder's threads do not exist in a child process made by fork(). In the child, every call that needs them throws
/// Error bad_pipeline, and the destructor frees nothing. Make the feeder after the fork, or start processes by exec, as
/// Python's "spawn" does. The child must not touch batches that were made before the fork.
class FEEDLINE_PUBLIC Feeder {
 public:
  /// Validates the pipeline, counts and verifies the data, plans every byte of memory, and starts reading. Throws Error
  /// if any of this fails. An epoch without a step is an Error, too, unless the pipeline says epoch { allow_empty: true
  /// }.
  ///
  /// With an exchange (or a communicator) all ranks make their feeders together. Each rank counts a share of the data.
  /// Either all feeders are made or none: if one rank fails, the others throw its Error, with its rank number.
  ///
  /// If the ranks differ in the number of ranks or replicas, the epoch, the pipeline, or the names, sizes or content of
  /// the files, all of them throw Error bad_pipeline, which says which rank differs and in what. They may differ in
  /// folders, index.dir, index.mode, memory, parallelism, cache, the kind of devices, threads and io. Without an
  /// exchange such differences are not detected.
  explicit Feeder(const Pipeline& pipeline, Options options = {});
  ~Feeder();
  Feeder(const Feeder&) = delete;
  Feeder& operator=(const Feeder&) = delete;

  /// Returns the replica's next batch; waits for it. Returns an empty batch once at the end of an epoch; then the next
  /// epoch begins. Each replica may be served by one thread at a time.
  ///
  /// Throws the first Error of the run, in the order of the data: the batches before the bad record come first. Throws
  /// Error stalled, at once, if only the caller could end the wait (it holds all of the replica's buffers, or another
  /// replica that this thread serves is more than host_prefetch steps behind), and after stop(). Throws std::bad_alloc
  /// if that is what ended the run.
  Batch next(int replica = 0);
  /// The same, but waits at most `timeout`. `batch` is set if the result is Next::batch.
  Next next(int replica, std::chrono::nanoseconds timeout, Batch& batch);
  Next try_next(int replica, Batch& batch) { return next(replica, std::chrono::nanoseconds(0), batch); }

  /// Returns the replica's next batch, ready on a stream: next() and Batch::ready_on() in one call. If the stream is
  /// refused (because it is of another kind or device), the call throws and takes nothing: the next call returns the
  /// same batch.
  ///
  /// With an options.gpu_communicator, this and next_into() are the only calls that give out batches. The call returns
  /// when all ranks have made it for this step. The stream must belong to the replica's GPU; it must not be the
  /// per-thread default stream, and must not be capturing a graph. Otherwise the call throws Error bad_pipeline or
  /// device_error and takes nothing.
  Batch next(int replica, Stream stream);

  /// Copies the next batch into the caller's memory on the replica's device, on `stream`. This is for programs that
  /// read fixed addresses, such as captured CUDA graphs that are launched again. `tensors` names some or all of the
  /// batch's tensors; the dtype and shape of each must be those of the batch, so it is best to drop or pad the last
  /// batch of an epoch. Must not be called inside a capture.
  ///
  /// Returns false at the end of the epoch, and then fills nothing. Throws the errors of next(), and Error bad_pipeline
  /// for a tensor that does not match the batch; then it fills and takes nothing, and the next call of next() or
  /// next_into() is about the same batch.
  bool next_into(int replica, std::span<const NamedTensor> tensors, Stream stream);

  /// Ends the feed and wakes every next(), set_state(), set_epoch() and set_weights() that is waiting. May be called
  /// from any thread, any number of times; returns at once. Batches that the trainer holds stay valid.
  void stop() noexcept;

  /// Returns what the trainer has received, as a text of at most 256 bytes of JSON. The text is the same on all ranks,
  /// whatever the number of ranks and replicas. It covers the steps up to the last one that all replicas of this
  /// process have received. Replicas that are ahead will receive their later steps again, so call get_state() when all
  /// replicas have received the same steps.
  std::string get_state() const;
  /// Returns the state after the first `step` steps of epoch(), or of the epoch given; `step` is 0 to
  /// steps_per_epoch(). This is for trainers that know more exactly which steps they have used. Throws Error
  /// bad_pipeline for a step that the epoch does not have.
  std::string get_state(int64_t step) const;
  std::string get_state(uint64_t epoch, int64_t step) const;

  /// Continues after the steps that the state says were received. The feeder computes the place and reads nothing to
  /// get there. Any number of ranks and replicas may continue from a state. May be called at any time when no next() is
  /// running. Batches that the trainer holds stay valid; their memory is then in addition to that of the plan.
  ///
  /// Throws Error bad_pipeline, and changes nothing, for a text that is no state, and if the data or the pipeline are
  /// not those of the state; the message names what changed. Only what decides the order of samples is compared: names,
  /// sizes and content of the files, source, interleave, filter, window, mixture, shuffle, seed, epoch, batch, and the
  /// records that `errors` leaves out. Features, outputs, parallelism, memory, index and cache are not compared. With
  /// `accept_changes` the feed continues at the same epoch and step even if the samples there are others now.
  ///
  /// With index.mode LAZY, states exist only after the first epoch has ended: before, this call and get_state() throw
  /// Error bad_pipeline.
  void set_state(std::string_view text, bool accept_changes = false);
  /// Moves the feeder to the beginning of an epoch, like set_state(). Does nothing if the feeder is already there,
  /// unless the feed has failed. Call it before each epoch, like set_epoch() of torch's DistributedSampler.
  void set_epoch(uint64_t epoch);

  /// Sets new weights of a mixture, one for each source. They apply from the next epoch on, and are rounded to
  /// multiples of 2^-24 of their sum. After this call the weights are part of the state, which becomes longer by 16
  /// bytes for each source, or by 22 bytes if 2^40 samples or more had been taken from any source.
  ///
  /// Call it only between epochs: before the first next(), or after every replica has received the end of an epoch. At
  /// any other time it throws Error bad_pipeline. All ranks must call it at the same point with the same weights. In
  /// all other respects the rules of set_state() apply. The number of steps in an epoch may change.
  void set_weights(const std::vector<double>& weights);

  /// Returns what every batch has, in the pipeline's order; known before the first batch, and the same on all ranks.
  const std::vector<ElementSpec>& elements() const noexcept;

  int replicas() const noexcept;
  /// Returns how many batches of the replica the caller may still take without giving one back. The feed needs one of
  /// them for the batch that it is making: if 0 are left, next() may throw Error stalled. Throws Error bad_pipeline if
  /// there is no such replica.
  size_t spare_batches(int replica = 0) const;
  /// Returns the epoch of the replica that is furthest behind.
  uint64_t epoch() const;
  /// Returns the number of steps in an epoch. -1 means that the epoch never ends (repeat: -1), or that it is not known
  /// yet: with index.mode LAZY until the first epoch has ended for all replicas.
  int64_t steps_per_epoch() const noexcept;
  /// Returns the number of good samples in an epoch, before the batch policy; -1 as for steps_per_epoch().
  int64_t samples_per_epoch() const noexcept;
  /// Returns the paths of the files, indexed by the numbers that `@file` gives.
  const std::vector<std::string>& files() const noexcept;
  /// Returns what `feedline check` prints: stages, counts, and every byte of the memory plan.
  std::string plan_text() const;
  const std::vector<std::string>& warnings() const noexcept;
  /// Returns what is known to slow down a feed with such a plan, each with the plan's figures and what to do about it.
  /// `feedline check` prints these as warnings. Empty on a rank whose rows another rank reads.
  std::vector<std::string> advice() const;

  /// Makes rows of the first `of_each_file` samples of each file, to find out whether the records fit the pipeline. It is
  /// quick whatever the size of the data, because it reads only some of many or large files, and makes at most some 256
  /// rows of pictures. It does not change the feed. On a rank whose rows another rank reads it examines nothing, and returns an empty result. Throws
  /// Error io_error.
  TriedRecords try_records(uint64_t of_each_file) const;

  /// Returns where the monitor is, with the port that was taken: "http://127.0.0.1:9400/" or "unix:/run/feed.sock".
  /// Empty if there is none.
  std::string monitor_address() const;
  /// Returns what the feeder has done so far. See Report.
  Report report() const;

  /// Returns whether the last epoch that this rank has finished was complete over all ranks; nullopt if this rank has
  /// finished none. With a communicator and SPLIT, all ranks must call it after the same epoch, and it waits for them;
  /// so it is meant for the end of an epoch or of the run. In all other cases it returns report().last_epoch. Throws
  /// the Error of a rank that has failed or has left.
  std::optional<EpochAudit> audit_ranks();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline
