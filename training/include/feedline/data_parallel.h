// Trains one model on several replicas at once. Each replica computes gradients from its own rows of a step, and all of
// them continue with the same values of the variables.
//
//   auto training = feedline::replicated(communicator, variables, sgd);   // on each rank, a thread or a process
//   while (auto batch = feeder.next()) {
//     forward(batch, variables);
//     for (size_t v = variables.size(); v-- > 0;) {                        // backward
//       write_gradient(v);
//       training->ready(v);                                               // sent while backward continues
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

/// One variable of the model. Its memory belongs to the trainer and must live as long as the training object. The
/// memory lies on the host, or on the GPU that DataParallelOptions::device names.
struct Variable {
  std::string name;
  /// The values that the forward pass reads. A model that computes in 16 bits makes its own 16-bit copy of them.
  std::span<float> value;
  /// The gradient of the mean loss over this replica's rows, multiplied by the loss scale; it has as many elements as
  /// `value`. Its dtype is FLOAT32, FLOAT16 or BFLOAT16. Gradients are sent and summed in this dtype (each sum is
  /// computed in float32 and rounded once).
  TensorView gradient;
};

/// The optimizer: changes the values of one variable, given the mean gradient over all replicas. The optimizer's state
/// (momentum, ...) is kept wherever Apply is called: on every rank, or only on the rank that owns the variable.
///
/// Calls for the variables come one after another, in the same order in every step. Both spans are memory of the
/// communicator's device (with distributed_replicated, of the device of the leaders' communicator). If that device is a
/// GPU, Apply must enqueue its kernels and copies on DataParallelOptions::stream. The thread that calls step() calls
/// Apply; on a parameter server, one of feedline's own threads calls it, with the server's GPU as its current device.
using Apply = std::function<void(size_t variable, std::span<float> value, std::span<const float> gradient)>;

/// One rank's handle to the training. All ranks have the same variables and make the same calls. If the communicator
/// has failed, step() and wait() throw the Error that ended it. Only one thread at a time may use the object.
///
/// If the object is destroyed between the first ready() and the end of step(), the synchronous modes abort the
/// communicator (Error stalled), so that the other ranks do not wait for gradients that never come. A step() that fails
/// does so with its own Error, and so does a rank that cannot make its object.
class FEEDLINE_PUBLIC DataParallel {
 public:
  virtual ~DataParallel();

  /// Marks the variable's gradient as complete. On the host, the gradient has been written. On a GPU, the kernels and
  /// copies that write it have been enqueued on DataParallelOptions::stream. The trainer may overwrite the gradient
  /// after step(). Variables may become ready in any order, each once in a step. Throws Error bad_pipeline for a
  /// variable that is ready twice.
  ///
  /// A background thread sends gradients that are ready, in buckets, the last variables first, because the backward
  /// pass computes them in that order.
  ///
  /// With NCCL, the program must not give NCCL any other work on this GPU from the first ready() until step() returns.
  /// Otherwise the calls of two communicators may reach the GPUs in different orders and deadlock. So in that time the
  /// trainer must not make a collective call of its own, and must not call next(replica, stream) of a feeder that has
  /// an options.gpu_communicator.
  virtual void ready(size_t variable) = 0;

  /// Waits for all gradients, divides their mean over all replicas by `loss_scale`, and applies it. Returns when this
  /// rank has the new values. On a GPU, this means that all kernels and copies that are enqueued on the stream from
  /// then on see the new values. Returns false if a gradient is infinite or NaN on any rank; then no rank has changed
  /// anything (see DataParallelOptions::check_finite). Throws Error bad_pipeline if a variable is not ready.
  [[nodiscard]] virtual bool step(float loss_scale = 1) = 0;

  /// Returns when all values have been written completely, also on a GPU. Call it before saving the values: without it,
  /// the loss of a rank during the transfer of the values may be reported only by the next step().
  virtual void wait() = 0;

  /// Returns the rank that applies the variable's gradients; -1: every rank does.
  virtual int owner(size_t variable) const = 0;

 protected:
  DataParallel() = default;
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;
};

/// Options of all training modes.
///
/// With a communicator whose device is the GPU of the variables (feedline/nccl_communicator.h), everything stays on
/// GPUs. With a communicator that takes host memory, the gradients of a GPU are summed on the host and applied there to
/// float32 master copies that feedline keeps, and the new values are copied back to the GPU. Values that the trainer
/// sets itself, for example from a checkpoint, must therefore be in place when the training object is made.
struct DataParallelOptions {
  /// The maximum size in bytes of the gradients that are sent together. A larger variable is sent alone. The default 0
  /// means 32 MiB if the communicator (in distributed_replicated, that of the machine) is for memory of a GPU, because
  /// every call between GPUs costs some 0.1 ms (an estimate) besides its data. Otherwise, and always in asynchronous
  /// training, 0 means 4 MiB. All ranks must have the same size.
  size_t bucket_bytes = 0;
  /// If true, step() makes sure that all gradients are finite before it changes anything. If this is false, step()
  /// always returns true, and Apply may be given infinite and NaN gradients. With a communicator for memory of a GPU,
  /// no GPU then has to wait in the middle of a step until the host has read whether the gradients are finite. So false
  /// suits gradients without a loss scale, which are FLOAT32 or BFLOAT16. If this is false and a rank fails, the values
  /// of all ranks are undefined, even on a rank whose last step() and wait() have not thrown. All ranks must have the
  /// same setting.
  bool check_finite = true;
  /// The device on which the variables lie, and the trainer's stream on that device. The stream must not be
  /// Stream::cuda_per_thread, and must not capture a graph during a call of DataParallel.
  DeviceId device = host();
  Stream stream = Stream::host;
};

/// Every rank has the whole model: gradients are all-reduced, and each rank applies them. This mode waits the least,
/// but every rank keeps the optimizer's state. At the start all ranks receive the values of rank 0, as in all
/// synchronous modes. Collective: all ranks must call it.
FEEDLINE_PUBLIC std::unique_ptr<DataParallel> replicated(std::shared_ptr<Communicator> communicator,
                                                         std::vector<Variable> variables, Apply apply,
                                                         const DataParallelOptions& options = {});

/// Each variable has one rank as its owner, chosen so that all ranks own about the same number of bytes. Gradients are
/// sent to the owner, which applies them and broadcasts the new values. The optimizer's state is thus divided
/// among the ranks. Collective: all ranks must call it.
FEEDLINE_PUBLIC std::unique_ptr<DataParallel> parameter_server(std::shared_ptr<Communicator> communicator,
                                                               std::vector<Variable> variables, Apply apply,
                                                               const DataParallelOptions& options = {});

/// For several machines: gradients are all-reduced inside each machine, and the leaders (rank 0 of each `machine`) act
/// as parameter servers for one another; each leader then broadcasts the values inside its machine. The network carries
/// one model per machine, not one per rank. Collective: all ranks must call it.
///
/// `machine` is a communicator between the ranks of one machine; it must take memory of the device on which the
/// variables lie. `leaders` is a communicator between the leaders; it is null on all other ranks. owner() returns a
/// rank of `leaders`.
FEEDLINE_PUBLIC std::unique_ptr<DataParallel> distributed_replicated(std::shared_ptr<Communicator> machine,
                                                                     std::shared_ptr<Communicator> leaders,
                                                                     std::vector<Variable> variables, Apply apply,
                                                                     const DataParallelOptions& options = {});

/// Makes a worker of asynchronous training. The servers (serve_parameters) apply a worker's gradients when they arrive,
/// each gradient once, and the worker continues with the values of that moment without waiting for the other workers.
/// So the values may be a few updates newer than those from which a gradient was computed.
///
/// `servers` has one communicator of size two for each server, in which the server is rank 0 and this worker is rank 1.
/// All of them are for memory of the same device. owner() returns the number of a server. In this mode ready() sends
/// nothing: step() checks all gradients for infinities and NaN before it sends any (unless
/// DataParallelOptions::check_finite is false), and divides them only by loss_scale. The destructor tells the servers
/// that the worker has finished.
FEEDLINE_PUBLIC std::unique_ptr<DataParallel> asynchronous(std::vector<std::shared_ptr<Communicator>> servers,
                                                           std::vector<Variable> variables,
                                                           const DataParallelOptions& options = {});

/// What a server has done, returned by serve_parameters().
struct Served {
  uint64_t updates = 0;     // the updates that were applied, from all workers together
  std::vector<Error> lost;  // one Error for each worker that ended without having said that it had finished
};
/// Runs one server of asynchronous training: number `server`, counted from 0, of `servers` servers. Returns when every
/// worker has finished or is lost. `variables` holds the initial values; of their gradients only the dtype and the
/// shape are used. The server owns its share of the variables, which must lie on the device whose memory its
/// communicators take.
///
/// `workers` has one communicator of size two for each worker, in which this server is rank 0. Each worker is served by
/// a thread of its own. If a worker is lost, or no thread can be started for it, the others are still served; the
/// updates that the lost worker had sent completely are applied. `apply` is called by one thread at a time.
FEEDLINE_PUBLIC Served serve_parameters(const std::vector<std::shared_ptr<Communicator>>& workers, int server,
                                        int servers, const std::vector<Variable>& variables, const Apply& apply,
                                        const DataParallelOptions& options = {});

/// Chooses the loss scale that keeps 16-bit gradients within their range: it doubles after `grow_after` finite steps in
/// a row, and is halved (but not below 1) after a step that was not finite. All ranks compute the same scale, because
/// step() returns the same value on all of them.
class LossScale {
 public:
  explicit LossScale(float first = 65536, int grow_after = 2000) : value_(first), grow_after_(grow_after) {}
  float value() const noexcept { return value_; }
  /// Doubles or halves the scale by the rule above. Call it once after each step; `finite` is what step() returned.
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
