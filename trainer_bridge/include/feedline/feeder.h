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
#include "feedline/element_spec.h"
#include "feedline/epoch_audit.h"
#include "feedline/error.h"
#include "feedline/exchange.h"
#include "feedline/export.h"
#include "feedline/io_options.h"
#include "feedline/pipeline.h"
#include "feedline/report.h"
#include "feedline/stage_report.h"
#include "feedline/transport.h"
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
  std::shared_ptr<Transport> communicator = {};
  /// A second communicator of the same ranks that connects their GPUs (nccl_communicator). It is for REPLICATE or
  /// SCATTER if each rank has one replica, on the GPU that the communicator connects. It carries only the rows;
  /// `communicator` carries everything else. Only the feeder may use it: pass it with std::move, so that it is
  /// destroyed together with the feeder and the other ranks notice that.
  ///
  /// With this communicator, rows go from the GPU of the rank that reads to the GPUs of the other ranks. This happens
  /// only inside next(replica, stream) and next_into(), in the order of the steps, on the stream of the call. So the
  /// transfers keep their order relative to the collectives that the trainer puts on that stream. After a rank has
  /// failed, transfers that are queued on a stream have the time NcclOptions::drain to finish. After that, the last
  /// batches may have any content, and the next call throws.
  std::shared_ptr<Transport> gpu_communicator = {};
  /// Each global batch is divided into `data_parallel_size` parts, and this rank gets part number `data_parallel_rank`,
  /// counted from 0. Ranks with the same part get the same rows, as tensor- and pipeline-parallel training needs. With
  /// the defaults -1 and 0, this rank gets the whole batch if `distribute` says REPLICATE, and otherwise part `rank` of
  /// `world_size` parts.
  int data_parallel_rank = -1, data_parallel_size = 0;
  /// The number of threads. A value that is not 0 overrides the pipeline's parallelism.threads. If both are 0, the
  /// feeder takes the number of CPUs that this process may use, divided by the number of ranks that torchrun, mpirun or
  /// srun has started on this machine, unless each rank was bound to CPUs of its own.
  int threads = 0;
  uint64_t epoch = 0;  // the epoch with which the feeder begins, at most 2^63 - 1
  IoOptions io = {};
  /// If true, the feeder is made only to ask it about its plan. It counts the data and makes its plan, but reads
  /// nothing ahead, allocates no batches, and opens no cache and no monitor. Its plan_text(), try_records(), warnings()
  /// and counts are those of a feeder that feeds; next(), report() and set_...() throw Error bad_pipeline.
  bool plan_only = false;
  /// The address at which the feeder's monitor answers HTTP. It serves a page for a browser at /, the report at
  /// /report.json, metrics for Prometheus at /metrics, and at /healthz whether the feed is running. The address is
  /// written as "127.0.0.1:9400", "[::1]:9400", or "unix:/run/feed.sock", which is a Unix domain socket that only this
  /// user can open. With port 0 the system chooses a free port. With any other port, rank r listens at that port plus
  /// r. With a path, rank 0 listens at the path, and any other rank r at the path with ".r" appended. Without an
  /// address there is no monitor.
  std::string monitor = {};
  /// The password of the monitor. A browser sends it for the user "feedline" (HTTP's Basic authentication),
  /// unencrypted. An address that other machines can reach needs a password.
  std::string monitor_token = {};
  /// If true, the feeder delivers the good rows before a bad record as a last, shorter batch, if they are too few for a
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
/// The pipeline's `distribute.mode` decides whether rows are sent between ranks. Rows are sent as they are stored, and
/// each rank unpacks what it receives.
///
///   SPLIT      No rows are sent; each rank reads its own part.
///   REPLICATE  All replicas of the ranks with the same data_parallel_rank are given the same rows; the first of these
///              ranks reads. Without a communicator, all replicas of this process are given the same rows.
///   SCATTER    Rank 0 reads for all ranks. The other ranks need no files except those of tables, of which they read
///              the headers, or everything if the lookup is on_device.
///
/// With a communicator, a rank whose feed ends with an Error, or that is lost, also ends the feeds of the other ranks,
/// within the communicator's timeout.
///
/// If no rows are sent between ranks, the other ranks learn of such a failure at their next step, even if they have
/// batches that are ready. A feeder that is destroyed normally does not end the feeds of the other ranks.
///
/// If rows are sent, the other ranks first receive the batches that have arrived. A feeder that is stopped or destroyed
/// ends the feeds of the other ranks as well. All ranks must move their feeders together: set_state(), set_epoch() and
/// set_weights() return when all ranks have called them with the same arguments.
///
/// A feeder's threads do not exist in a child process made by fork(). In the child, every call that needs them throws
/// Error bad_pipeline, and the destructor frees nothing. Make the feeder after the fork, or start processes by exec, as
/// Python's "spawn" does. The child must not touch batches that were made before the fork.
class FEEDLINE_PUBLIC Feeder {
 public:
  /// Validates the pipeline, counts and verifies the data, plans every byte of memory, and starts reading. Throws Error
  /// if any of this fails. An epoch without a step is an Error, too, unless the pipeline has `allow_empty: true` in
  /// `epoch`.
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
  /// Error stalled after stop(). Also throws Error stalled, at once, if only the caller could end the wait: because it
  /// holds all of the replica's buffers, or because another replica that this thread serves is more than host_prefetch
  /// steps behind. Throws std::bad_alloc if lack of memory has ended the run.
  Batch next(int replica = 0);
  /// Does the same as next(replica), but waits at most `timeout`. `batch` is set if the result is Next::batch.
  Next next(int replica, std::chrono::nanoseconds timeout, Batch& batch);
  Next try_next(int replica, Batch& batch) { return next(replica, std::chrono::nanoseconds(0), batch); }

  /// Returns the replica's next batch, ready on a stream: next() and Batch::ready_on() in one call. If the stream is
  /// refused, because its kind or device is not the right one for the replica, the call throws and takes nothing: the
  /// next call returns the same batch.
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
  /// for a tensor that does not match the batch. After that Error nothing has been filled or taken, and the next call
  /// of next() or next_into() gets the same batch.
  bool next_into(int replica, std::span<const NamedTensor> tensors, Stream stream);

  /// Ends the feed and wakes every next(), set_state(), set_epoch(), set_weights() and audit_ranks() that is waiting.
  /// If audit_ranks() is waiting, the calls of audit_ranks() on the other ranks end, too. May be called from any
  /// thread, any number of times; returns at once. Batches that the trainer holds stay valid.
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

  /// Continues after the steps that the state says were received. The feeder computes its new position, and reads no
  /// data to get there. Any number of ranks and replicas may continue from a state. May be called at any time when no
  /// next() is running. Batches that the trainer holds stay valid; their memory is then needed in addition to the
  /// planned memory.
  ///
  /// Throws Error bad_pipeline, and changes nothing, if the text is not a state, or if the data or the pipeline are not
  /// those of the state; the message names what changed. Only what decides the order of samples is compared: names,
  /// sizes and content of the files, source, interleave, filter, window, mixture, shuffle, seed, epoch, batch, and the
  /// records that `errors` leaves out. Features, outputs, parallelism, memory, index and cache are not compared. With
  /// `accept_changes` the feed continues at the same epoch and step even if it now has different samples there.
  ///
  /// With index.mode LAZY, states exist only after the first epoch has ended. Before that, this call and get_state()
  /// throw Error bad_pipeline.
  void set_state(std::string_view text, bool accept_changes = false);
  /// Moves the feeder to the beginning of an epoch, like set_state(). Does nothing if the feeder is already there.
  /// Three cases begin the feed again all the same: the feed has failed, rows are sent between ranks or replicas, or
  /// index.mode is LAZY and the feed has not begun again since the first epoch ended. Call it before each epoch, like
  /// set_epoch() of torch's DistributedSampler.
  void set_epoch(uint64_t epoch);

  /// Sets new weights of a mixture, one for each source. They apply from the next epoch on, and are rounded to
  /// multiples of 2^-24 of their sum. After this call the weights are part of the state, which becomes longer by 16
  /// bytes for each source, or by 22 bytes if 2^40 samples or more had been taken from any source.
  ///
  /// Call it only between epochs: before the first next(), or after every replica has received the end of an epoch. At
  /// any other time it throws Error bad_pipeline. All ranks must call it at the same point with the same weights. In
  /// all other respects the rules of set_state() apply. The number of steps in an epoch may change.
  void set_weights(const std::vector<double>& weights);

  /// Returns the outputs that every batch has, in the pipeline's order. They are known before the first batch, and are
  /// the same on all ranks.
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
  /// Returns the number of good samples in an epoch, before the batch policy drops or pads any. Returns -1 if the epoch
  /// never ends, or if the number is not known yet (see steps_per_epoch()).
  int64_t samples_per_epoch() const noexcept;
  /// Returns the paths of the files. The number of a record's file (the feature `@file`) is an index into them.
  const std::vector<std::string>& files() const noexcept;
  /// Returns what `feedline check` prints: stages, counts, and every byte of the memory plan.
  std::string plan_text() const;
  const std::vector<std::string>& warnings() const noexcept;
  /// Returns a text for each thing that is known to slow down a feed with such a plan. Each text has the plan's figures
  /// and says what to do about it. `feedline check` prints these texts as warnings. Returns an empty list on a rank
  /// whose rows another rank reads.
  std::vector<std::string> advice() const;

  /// Makes rows of the first `of_each_file` samples of each file, to find out whether the records fit the pipeline. It
  /// is quick whatever the size of the data: of many or large files it reads only a part, and it makes at most some 256
  /// rows of pictures. It does not change the feed. On a rank whose rows another rank reads it examines nothing, and
  /// returns an empty result. Throws Error io_error.
  TriedRecords try_records(uint64_t of_each_file) const;

  /// Returns the address of the monitor, with the port that it has taken: "http://127.0.0.1:9400/" or
  /// "unix:/run/feed.sock". Returns an empty text if there is no monitor.
  std::string monitor_address() const;
  /// Returns what the feeder has done so far. See Report.
  Report report() const;

  /// Returns whether the last epoch that this rank has finished was complete over all ranks; nullopt if this rank has
  /// not finished an epoch yet. With a communicator and SPLIT, all ranks must call it after the same epoch, and it
  /// waits for them; so it is meant for the end of an epoch or of the run. In all other cases it returns
  /// report().last_epoch. Throws the Error of a rank that has failed or has left; Error stalled if stop() ends the wait
  /// on any rank.
  std::optional<EpochAudit> audit_ranks();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline
