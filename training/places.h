// The two places of a training: the device on which the trainer reads variables, and the one on which they are changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "feedline/communicator.h"
#include "feedline/data_parallel.h"
#include "gpu/device/queue.h"
#include "ranks/current_error.h"

namespace feedline {

/// `here` is the device on which the trainer's variables lie. `home` is the device on which ranks exchange gradients
/// and the optimizer is called. Either both are the same device, or `here` is a GPU and `home` is the host; then the
/// master copies of the variables lie on the host.
class Places {
 public:
  /// `home` is the device of the communicator. Throws Error bad_pipeline if that device, options.device and
  /// options.stream do not match.
  Places(const DataParallelOptions& options, DeviceId home);

  gpu::Queue& here() noexcept { return *here_; }
  gpu::Queue& home() noexcept { return *home_; }
  bool apart() const noexcept { return here_ != home_; }

  /// Copy from `here` to `home`, and from `home` to `here`; do nothing if both are one device. The copy is complete
  /// when to_home() returns. After to_here(), memory at home must not be written until here().wait() has returned.
  void to_home(void* at_home, const void* here, size_t bytes);
  void to_here(void* here, const void* at_home, size_t bytes);

  /// Allocates host memory that GPUs and communicators can access as well. It lives as long as this object.
  std::byte* allocate_on_host(size_t bytes) { return host_->allocate(bytes); }
  /// Keeps the host memory for the rest of the process, because a failed communicator may still access it.
  void keep_host_memory() const;

 private:
  std::shared_ptr<gpu::Queue> host_, here_, home_;
};

/// A communicator that the training uses. If it has failed, it may still access host memory, so the destructor then
/// keeps that memory for the rest of the process.
class TrainingCommunicator {
 public:
  TrainingCommunicator(std::shared_ptr<Communicator> communicator, const Places& places)
      : communicator_(std::move(communicator)), places_(places) {}
  ~TrainingCommunicator() {
    if (communicator_->failure()) places_.keep_host_memory();
  }
  TrainingCommunicator(const TrainingCommunicator&) = delete;
  TrainingCommunicator& operator=(const TrainingCommunicator&) = delete;
  Communicator* operator->() const noexcept { return communicator_.get(); }

 private:
  const std::shared_ptr<Communicator> communicator_;
  const Places& places_;
};

/// Returns what `make`, which makes a part of a training, returns. If `make` throws, aborts the communicators (null ones
/// are left out) with its Error, so that no other rank waits for this one.
template <typename Make>
auto or_abort(std::vector<std::shared_ptr<Communicator>> communicators, Make make) {
  try {
    return make();
  } catch (...) {
    for (const auto& communicator : communicators)
      if (communicator) communicator->abort(current_error());
    throw;
  }
}

/// A flag of one step: whether all gradients are finite. It has a copy `here` and at `home` (see Places), where
/// divisions clear it and ranks combine it, and a copy on the host, from which the program reads it.
class Verdict {
 public:
  explicit Verdict(Places& places);

  /// Sets the flag to "all gradients are finite" on the device of this queue, `here` or `home`.
  void begin(gpu::Queue& on);
  /// Returns the flag's address on the queue's device, for divisions on that queue and for communicators.
  int32_t* at(const gpu::Queue& queue) const noexcept { return &queue == &places_.home() ? home_ : here_; }
  void home_to_here() { places_.to_here(here_, home_, sizeof *here_); }
  /// Waits until the queue `here` has done its work, and returns the flag's value there: whether all gradients are
  /// finite.
  bool read();

 private:
  Places& places_;
  int32_t *host_, *here_, *home_;
};

}  // namespace feedline
