// Training a model on several replicas at once: each has its rows of a step, and all go on with the same variables.
//
//   auto training = feedline::replicated(communicator, variables, sgd);   // on each rank, a thread or a process
//   while (auto batch = feeder.next()) {
//     forward(batch, variables);
//     for (size_t v = variables.size(); v-- > 0;) {                        // backward
//       write_gradient(v);
//       training->ready(v);                                               // sent while backward goes on
//     }
//     if (!training->step()) skipped++;                                   // a gradient was not finite: nothing changed
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "feedline/communicator.h"
#include "feedline/export.h"
#include "feedline/tensor.h"

namespace feedline {

/// Memory of the trainer's, which lives as long as the training: of the host, or of the GPU in DataParallelOptions.
struct Variable {
  std::string name;
  std::span<float> value;  // what forward reads; a model in 16 bits makes its own copy of it
  /// Of the loss that is the mean over this replica's rows, times the loss scale; as many elements. FLOAT32, FLOAT16 or
  /// BFLOAT16: in this type it travels and is summed (each sum in float32, rounded once).
  TensorView gradient;
};

/// The optimizer: changes a variable's value by the mean gradient over all replicas. Its state (momentum, ...) is where
/// it is called: on every rank, or on the rank that owns the variable. In order, one call at a time. Both spans are
/// memory of the communicator's device (in distributed_replicated that of the leaders'): of a GPU, then it gives the
/// work to DataParallelOptions::stream. Called by the thread that calls step(); on a server by one of ours, on its GPU.
using Apply = std::function<void(size_t variable, std::span<float> value, std::span<const float> gradient)>;

/// One rank's end. All ranks have the same variables and make the same calls. A call throws the Error that has ended
/// the communicator. Used by one thread at a time.
class FEEDLINE_PUBLIC DataParallel {
 public:
  virtual ~DataParallel();

  /// The variable's gradient is written, on a GPU by what the stream was given until now; it may be written again after
  /// step(). In any order, each once a step. What is ready is sent in the background, in buckets, the last variables
  /// first, as backward makes them. Over NCCL nothing else may be given to NCCL on this GPU from the first ready() to
  /// step(), since calls of two communicators may come to GPUs in different orders: no collective of the trainer's own,
  /// and no next(replica, stream) of a feeder with an options.gpu_communicator.
  virtual void ready(size_t variable) = 0;

  /// Waits for all gradients, divides them by loss_scale, applies their mean, and returns when all values here are the
  /// new ones; on a GPU those that the stream finds from now on. false: a gradient is infinite or NaN on some rank;
  /// then no rank has changed anything.
  [[nodiscard]] virtual bool step(float loss_scale = 1) = 0;

  /// Returns when the values are whole, on a GPU, too: before they are saved. Else a rank that is lost while they come
  /// may be told of by the next step() alone.
  virtual void wait() = 0;

  /// Which rank applies a variable's gradients; -1: every rank.
  virtual int owner(size_t variable) const = 0;

 protected:
  DataParallel() = default;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;
};

/// A communicator of the same GPU (feedline/nccl_communicator.h) keeps all on GPUs. With one that takes memory of the
/// host, gradients of a GPU are summed and applied there, to float32 masters of the host's own, whose values come back
/// (so values that the trainer sets itself, from a checkpoint say, are to be there when the training is made).
struct DataParallelOptions {
  size_t bucket_bytes = size_t{4} << 20;  // of gradients that are sent together; a larger variable goes alone
  /// Where variables lie, and the trainer's stream there. Not Stream::cuda_per_thread, and none that captures
  /// meanwhile.
  DeviceId device = host();
  Stream stream = Stream::host;
};

/// Every rank has the whole model: gradients are all-reduced, and each applies them. The least waiting; every rank
/// keeps the optimizer's state. Begins, as the others, with the values of rank 0 on all ranks.
FEEDLINE_PUBLIC std::unique_ptr<DataParallel> replicated(std::shared_ptr<Communicator> communicator,
                                                         std::vector<Variable> variables, Apply apply,
                                                         const DataParallelOptions& options = {});

/// Each variable has an owner, so that all ranks own about as many bytes: gradients go to it, it applies them, and its
/// values come back. The optimizer's state is shared out over the ranks.
FEEDLINE_PUBLIC std::unique_ptr<DataParallel> parameter_server(std::shared_ptr<Communicator> communicator,
                                                               std::vector<Variable> variables, Apply apply,
                                                               const DataParallelOptions& options = {});

/// Between machines: gradients are all-reduced inside each, and the leaders (rank 0 of each `machine`) are parameter
/// servers to one another; the values are passed on inside. The network carries one model for each machine, not for
/// each rank. machine: takes memory where the variables lie. leaders: between these; empty on all other ranks. owner()
/// is a rank of `leaders`.
FEEDLINE_PUBLIC std::unique_ptr<DataParallel> distributed_replicated(std::shared_ptr<Communicator> machine,
                                                                     std::shared_ptr<Communicator> leaders,
                                                                     std::vector<Variable> variables, Apply apply,
                                                                     const DataParallelOptions& options = {});

/// Asynchronous: a worker's gradients are applied as they come, each once, and it goes on with the values of that
/// moment without waiting for the other workers; so values may be a few updates newer than what a gradient was computed
/// from. servers: for each a communicator of two, in which the server is rank 0 and this worker rank 1. owner() is a
/// number of a server. Here step() checks all gradients before it sends any, and divides by loss_scale alone; nothing
/// is sent before. The destructor tells the servers that the worker has done.
FEEDLINE_PUBLIC std::unique_ptr<DataParallel> asynchronous(std::vector<std::shared_ptr<Communicator>> servers,
                                                           std::vector<Variable> variables,
                                                           const DataParallelOptions& options = {});

/// A server of it: has `variables` with the values to begin with (their gradients are not read, only their dtype), and
/// owns its share of them. They lie where its communicators take memory. Returns when all workers have done. A worker
/// that is lost, or that no thread can be started for, ends by itself; what it had sent whole is applied. Apply is
/// called by one thread at a time.
struct Served {
  uint64_t updates = 0;     // that were applied, of all workers
  std::vector<Error> lost;  // why workers ended that did not say that they have done
};
FEEDLINE_PUBLIC Served serve_parameters(const std::vector<std::shared_ptr<Communicator>>& workers, int server,
                                        int servers, const std::vector<Variable>& variables, const Apply& apply,
                                        const DataParallelOptions& options = {});

/// Keeps 16-bit gradients within their range: grows while all is finite, and backs off when it is not. The same on all
/// ranks, as step() says the same to all.
class LossScale {
 public:
  explicit LossScale(float first = 65536, int grow_after = 2000) : value_(first), grow_after_(grow_after) {}
  float value() const noexcept { return value_; }
  /// finite: what step() returned.
  void update(bool finite) noexcept {
    good_steps_ = finite ? good_steps_ + 1 : 0;
    if (!finite) value_ = value_ > 1 ? value_ / 2 : 1;
    if (good_steps_ < grow_after_) return;
    good_steps_ = 0;
    if (value_ < 0x1p100f) value_ *= 2;
  }

 private:
  float value_;
  int grow_after_, good_steps_ = 0;
};

}  // namespace feedline
